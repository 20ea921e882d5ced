from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from importlib.resources import files
from itertools import accumulate
from pathlib import Path
from string import Template
from typing import Annotated, ClassVar, Literal

import numpy as np
from pydantic import NonNegativeFloat, NonNegativeInt, PositiveFloat, field_validator

from groupwise.credit import (
    Blend,
    ByTask,
    Deviation,
    EpisodeReturn,
    Penalised,
    Relative,
    ReturnToGo,
    check_recorded,
    pay_last,
)
from groupwise.data.past_rollouts import MeasuredAgainst, PastRollout, ReplayedRollout, digest_states, find_histories
from groupwise.data.records import Origin, StopReason, Trajectory, score_of
from groupwise.data.segments import FloatArray, IntArray
from groupwise.losses import Clip, Kl, PolicyLoss, SequenceMean
from groupwise.methods.hgpo import hgpo
from groupwise.methods.method import method
from groupwise.methods.terms import make_history_terms
from groupwise.parts import Algorithm, Count, Draw, Part, Positive, PositiveShare, Share
from groupwise.parts.outside import WITHOUT_TRUST, may_run
from groupwise.parts.path_settings import make_absolute, resolve_by
from groupwise.store.rollout_index import PastRollouts
from groupwise.system.errors import ConfigError, nearest
from groupwise.system.files import read_text_file
from groupwise.system.text import quote_line


@method
def r3(
    *,
    with_replay: bool = True,
    with_reflection: bool = True,
    with_ranking: bool = True,
    k: NonNegativeInt = 0,
    alpha: PositiveFloat = 1.0,
    tau: NonNegativeFloat = 0.25,
    p: PositiveShare = 0.2,
    best: PositiveFloat = 0.5,
) -> Algorithm:
    """R^3 (2026, arXiv:2601.19620): zero-variance groups replay past rollouts, reflect on failures, or are ranked.

    A_i = (R_i - mean(G + G_past)) / (alpha * std(G + G_past) + 1e-6), alpha = 1 where nothing was replayed

    Choices: the paper gives no values, and no code is public: k, alpha, tau, p and best are ours. Ours too is the ratio
    to the log-prob that a replayed token was sampled with. The paper stores none, so by its text the ratio begins at 1
    (`replay.ratio = "recomputed"`). alpha acts on every member of a mixed group. A failed answer that ended by itself
    gets the mean of the ranked ones. With 0, as in the paper, being cut off is rewarded, and our runs learned to be cut
    off. `best` alone bounds nothing, because in a group without success the standard deviation cancels it (not with the
    scale `fixed_unless_solved`). Each of the three can be switched off; without them, or with nothing to replay, it is
    GRPO with the population standard deviation. The paper's reward for brevity is the reward `brevity` in `rewards`.
    Clip 0.2, each answer counts the same, KL 0.001 as k3.
    """
    credit = Relative(
        by=ByTask(),
        of=EpisodeReturn(),
        scale=Deviation(ddof=0),
        mixed_scale=Deviation(ddof=0, factor=alpha) if with_replay else None,
    )
    return Algorithm(
        advantage=credit,
        shapers=(EntropyRanking(p=p, best=best),) if with_ranking else (),
        replay=CrossContextReplay(k=k) if with_replay else None,
        hint=Reflection(tau=tau) if with_reflection else None,
        loss=PolicyLoss(surrogate=Clip(), aggregate=SequenceMean(), penalties=(Kl(estimator="k3", weight=0.001),)),
    )


@method
def r3_grpo_ablation(
    *, with_replay: bool = False, with_reflection: bool = False, with_ranking: bool = False
) -> Algorithm:
    """R^3, taken apart (2026, arXiv:2601.19620): the same base, with each of the three mechanisms off by default.

    A_i = (R_i - mean(R)) / (std(R) + eps) with all three off

    Choices: as for R^3. One switch on shows the effect of that mechanism alone.
    """
    return r3(with_replay=with_replay, with_reflection=with_reflection, with_ranking=with_ranking)


@method
def r3_hgpo(
    *,
    depth: NonNegativeInt = 2,
    gamma: Share = 0.95,
    with_replay: bool = True,
    with_reflection: bool = True,
    with_ranking: bool = False,
    alpha: PositiveFloat = 1.0,
    tau: NonNegativeFloat = 0.25,
    best: PositiveFloat = 0.5,
) -> Algorithm:
    """R^3 joined with HGPO (ours, after arXiv:2601.19620 and arXiv:2602.22817): steps replay others with the same
    history.

    A = sum_d w_d A_d / sum_d w_d,   A_d over own and replayed steps with equal (s_{t-d}, ..., s_t),   w_d = d + 1

    Choices: none of this is in either paper. Replay looks for contexts in which all steps have the same return, and
    takes the past rollouts that fill most of them. Reflection shows a failed rollout as observations and actions, for
    at most two tasks per update. Ranking is off by default because it slowed our runs down; it ranks all failed
    rollouts by the mean entropies of their steps. Groups with replayed steps are divided by alpha times their standard
    deviation. A malformed response has no penalty: divided by the standard deviation of a group without success, only
    the penalty would be learned. With all three off it is HGPO without that penalty.
    """
    mixed = Deviation(ddof=0, factor=alpha) if with_replay else None
    weights = [float(d + 1) for d in range(depth + 1)]
    terms = make_history_terms(weights, Penalised(of=ReturnToGo(gamma=gamma), penalty=0.0), Deviation(ddof=0), mixed)
    return Algorithm(
        advantage=Blend(terms=terms),
        shapers=(EntropyRanking(best=best, who="failed", per="step"),) if with_ranking else (),
        replay=HistoryKeyedReplay(depth=depth, gamma=gamma) if with_replay else None,
        hint=Reflection(tau=tau, prompt="rollout", max_tasks=2) if with_reflection else None,
        loss=hgpo().loss,
    )


# Ranking rewards: rollouts that all failed are ranked by the pattern of their entropies.
#

TOLERANCE = 1e-9
"""Entropies closer than this are equal: sums of the same numbers may differ in their last digit."""


class EntropyRanking(Part, slot="shaper"):
    """Reward failed rollouts by rank: first are those with high entropy at a few points and low entropy elsewhere.

        peak = mean of the top share p of a rollout's entropies,   overall = mean of all of them
        i beats j  iff  peak_i > peak_j and overall_i < overall_j;   S_i = how many i beats
        reward at rank k of N, by S from above: best * (1 - k / (N - 1));   equal S share the mean of their ranks

    Source: R^3 (2026, arXiv:2601.19620), structural entropy ranking reward; its algorithm ranks responses that were cut
    off (`who="truncated"`), while its abstract also speaks of failed ones. Choices, where the paper says nothing: p
    0.2; best 0.5; N counts the ranked ones; a single ranked rollout gets 0. A group with a success stays as it is. One
    difference: rollouts that failed without being cut off get the mean of the ranked ones, and if all ranks are equal,
    all get 0 (`finished="mean"`). With 0, as in the paper's text (`finished="zero"`), being cut off itself is rewarded.
    For rollouts of many steps `who="failed"` ranks all of them (ours), by their tokens' entropies or by their steps'
    means (`per`). The entropies are those reported at sampling. `best` does not set the strength of the ranking:
    division by the group's own standard deviation cancels it, except beside a replayed success or with the scale
    `fixed_unless_solved`.
    """

    needs_entropy: ClassVar[bool] = True
    p: PositiveShare = 0.2
    """Fraction of the entropies in the peak; at least one."""
    best: Positive = 0.5
    """Reward of the first rank; keep it below the reward of a right answer."""
    who: Literal["truncated", "failed"] = "truncated"
    """Which rollouts of a group without success are ranked: those that a limit cut off, or all."""
    finished: Literal["mean", "zero"] = "mean"
    """Reward of a failed rollout that is not ranked: the mean of the ranked ones, so being cut off gives no advantage,
    or 0, as in the paper.
    """
    per: Literal["token", "step"] = "token"
    """The unit of an entropy: a token, or the mean over a step."""
    solved_at: float = 0.5
    """The smallest score of a right rollout."""

    def __call__(self, group: Sequence[Trajectory]) -> list[tuple[float, ...]]:
        # On the last step, like a final score: discounting carries it back.
        return [pay_last(trajectory, amount) for trajectory, amount in zip(group, self._pay(group), strict=True)]

    def _pay(self, group: Sequence[Trajectory]) -> list[float]:
        """The reward of each rollout; 0 if some rollout succeeded, or if all ranks are equal."""
        if any(score_of(trajectory) >= self.solved_at for trajectory in group):
            return [0.0] * len(group)
        ranked = [
            i
            for i, trajectory in enumerate(group)
            if trajectory.steps
            and (self.who == "failed" or trajectory.stop is StopReason.TRUNCATED or trajectory.steps[-1].cut)
        ]
        patterns = [_measure_pattern(self._list_entropies(group[i]), self.p) for i in ranked]
        peaks, overall = np.array([p for p, _ in patterns]), np.array([o for _, o in patterns])
        rewards = compute_ranking_rewards(peaks, overall, best=self.best)
        if self.finished == "mean" and len(set(rewards.tolist())) < 2:
            return [0.0] * len(group)  # equal rewards, which discounting would turn into a reward for speed
        amounts = [float(rewards.mean()) if self.finished == "mean" else 0.0] * len(group)
        for i, reward in zip(ranked, rewards.tolist(), strict=True):
            amounts[i] = reward
        return amounts

    def _list_entropies(self, trajectory: Trajectory) -> list[float]:
        check_recorded(trajectory, "entropy", "by which failed rollouts are ranked")
        if self.per == "step":
            return [sum(step.entropy) / len(step.entropy) for step in trajectory.steps if step.entropy]
        return [entropy for step in trajectory.steps for entropy in step.entropy]


def compute_ranking_rewards(peak: FloatArray, overall: FloatArray, *, best: float) -> FloatArray:
    """The rewards of N rollouts by the order of dominance (N)."""
    if len(peak) < 2:
        return np.zeros(len(peak))
    beats = (peak[:, None] > peak[None, :] + TOLERANCE) & (overall[:, None] < overall[None, :] - TOLERANCE)
    wins = beats.sum(axis=1)
    better = (wins[None, :] > wins[:, None]).sum(axis=1)
    equal = (wins[None, :] == wins[:, None]).sum(axis=1)
    rank = better + (equal - 1) / 2
    return np.asarray(best * (1 - rank / (len(peak) - 1)), dtype=np.float64)


def _measure_pattern(entropies: Sequence[float], p: float) -> tuple[float, float]:
    if not entropies:
        return 0.0, 0.0
    values = np.sort(np.array(entropies))
    top = max(1, int(np.floor(p * len(values))))
    return float(values[-top:].mean()), float(values.mean())


# Replay by task: an all-failed group replays a success, an all-solved group a failure.


class CrossContextReplay(Part, slot="replay"):
    """Give a zero-variance group a difference again from the task's own past.

        all wrong: G + k past successes;   all right: G + k past failures;   otherwise: G

    Source: R^3 (2026, arXiv:2601.19620), cross-context replay. Choices, where the paper says nothing: k is a quarter of
    the group. The newest update comes first, and within it the draw is uniform; only the newest `ring` rollouts of a
    task are candidates. Right and wrong are decided by the environment's score, or by the return, never by a reward for
    brevity. The paper stores no log-probs. By its text a past rollout is measured against the current policy
    (`ratio="recomputed"`): its ratio begins at 1, and successes are imitated, failures unlearned, with full strength.
    Ours is the ratio to the policy that sampled it (`ratio="stored"`), so rollouts that became unlikely have little
    effect. A rollout from which the policy has moved too far away is left out (`max_log_ratio`).
    """

    k: NonNegativeInt = 0
    """Past rollouts per group; 0 = one for every four of its own, at least one."""
    ring: Count = 64
    """Newest rollouts of a task that are candidates."""
    max_staleness: Count | None = None
    """Largest staleness of a past rollout, in policy versions; None = any."""
    max_log_ratio: PositiveFloat | None = 1.0
    """How far the policy may have moved from a past rollout, in nats per token; None = any distance."""
    ratio: MeasuredAgainst = "stored"
    """The log-prob that the ratio of a replayed token compares with: `stored` when it was sampled, or `recomputed` by
    the current policy. A recomputed ratio begins at 1."""
    solved_at: float = 0.5
    """The smallest score of a right rollout."""

    def __call__(
        self, groups: Sequence[Sequence[Trajectory]], past_rollouts: PastRollouts, *, version: int, draw: Draw
    ) -> list[ReplayedRollout]:
        return [rollout for group in groups for rollout in self._replay(group, past_rollouts, version, draw)]

    def _replay(
        self, group: Sequence[Trajectory], past_rollouts: PastRollouts, version: int, draw: Draw
    ) -> list[ReplayedRollout]:
        right = {score_of(trajectory) >= self.solved_at for trajectory in group}
        if len(right) != 1:
            return []
        (is_right,) = right
        task, since = group[0].task.id, 0 if self.max_staleness is None else version - self.max_staleness
        past = past_rollouts.recent(task, max_rollouts=self.ring, since=since)
        other = [rollout for rollout in past if (rollout.score >= self.solved_at) is not is_right]
        why = "every rollout succeeded" if is_right else "every rollout failed"
        wanted = self.k or max(1, len(group) // 4)
        # Newer updates before older ones; within one, in random order.
        place = draw("replay", task).permutation(len(other)).tolist()
        newest_first = sorted(range(len(other)), key=lambda i: (-other[i].number, place[i]))
        return [ReplayedRollout(past=other[i], task=task, why=why, ratio=self.ratio) for i in newest_first[:wanted]]


# Replay by history: steps without a difference in their group replay past rollouts with the same history.

Context = tuple[int, ...]
"""A state and the states before it, oldest first."""


class HistoryKeyedReplay(Part, slot="replay"):
    """Replay the past rollouts that give most steps of a group something to be compared with.

    A step's context at depth d is its state and the d states before it. A context lacks a comparison if all steps of
    the group in it have the same return from there on; a single step is the simplest case. A past rollout of the same
    task fills the context if it has the same context with another return. Rollouts are replayed one by one, each time
    the one that fills the contexts of most steps, deeper contexts with more weight (d + 1), until none fills any.

    Source: ours; it joins replay (R^3, arXiv:2601.19620) with the contexts of HGPO (arXiv:2602.22817). Whole rollouts
    are replayed, so their returns and histories do not change.
    """

    depth: NonNegativeInt = 2
    """Number of earlier states in a context, at most."""
    max_rollouts: Count = 2
    """Past rollouts per group, at most."""
    gamma: Share = 0.95
    """Discount of later rewards, as in the estimator."""
    ring: Count = 64
    """Newest rollouts of a task that are candidates."""
    max_staleness: Count | None = None
    """Largest staleness of a past rollout, in policy versions; None = any."""
    max_log_ratio: PositiveFloat | None = 1.0
    """How far the policy may have moved from a past rollout, in nats per token; None = any distance."""
    ratio: MeasuredAgainst = "stored"
    """The log-prob that the ratio of a replayed token compares with: `stored` when it was sampled, or `recomputed` by
    the current policy. A recomputed ratio begins at 1."""

    def __call__(
        self, groups: Sequence[Sequence[Trajectory]], past_rollouts: PastRollouts, *, version: int, draw: Draw
    ) -> list[ReplayedRollout]:
        return [rollout for group in groups for rollout in self._replay(group, past_rollouts, version)]

    def _replay(self, group: Sequence[Trajectory], past_rollouts: PastRollouts, version: int) -> list[ReplayedRollout]:
        task, since = group[0].task.id, 0 if self.max_staleness is None else version - self.max_staleness
        earned: dict[Context, set[float]] = {}
        passed: dict[Context, int] = {}
        for trajectory in group:
            rewards = np.array([step.reward for step in trajectory.steps])
            for context, gain in self._list_contexts(digest_states(trajectory), rewards):
                earned.setdefault(context, set()).add(gain)
                passed[context] = passed.get(context, 0) + 1
        lacking = {context for context, gains in earned.items() if len(gains) == 1}
        past = past_rollouts.recent(task, max_rollouts=self.ring, since=since) if lacking else []
        replayed: list[ReplayedRollout] = []
        while past and len(replayed) < self.max_rollouts:
            # The contexts in which each past rollout would differ from the current ones.
            filled = [
                {
                    context
                    for context, gain in self._list_contexts(rollout.states, rollout.rewards)
                    if context in lacking and gain not in earned[context]
                }
                for rollout in past
            ]
            worth = [sum(len(context) * passed[context] for context in contexts) for contexts in filled]
            best = int(np.argmax(worth))  # of equals the newest: `recent` gives the newest first
            if not worth[best]:
                break
            deepest = max(len(context) for context in filled[best]) - 1
            why = f"{len(filled[best])} contexts, up to depth {deepest}, had nobody to differ from"
            replayed.append(ReplayedRollout(past=past[best], task=task, why=why, ratio=self.ratio))
            lacking -= filled[best]
            del past[best]
        return replayed

    def _list_contexts(self, states: IntArray, rewards: FloatArray) -> Iterator[tuple[Context, float]]:
        """Each context of a rollout at each depth, with its return from there on."""
        gains = [*accumulate(reversed(rewards.tolist()), lambda after, reward: reward + self.gamma * after)][::-1]
        for depth in range(self.depth + 1):
            for step, context in find_histories(states, depth):
                yield context, gains[step]


# Reflection: a task that keeps failing is sampled again with a failed rollout in the prompt.

PROMPTS = ("answer", "rollout", "terse")
"""The prompts that come with groupwise: files of `methods/reflection_prompts`."""
GAP = " ... "
"""What stands for the middle of a rollout that is too long to show."""


PromptText = Annotated[
    str, resolve_by(lambda prompt: prompt if "$rollout" in prompt or prompt in PROMPTS else make_absolute(prompt))
]
"""A field that holds a prompt: its name, itself, or the path of its file."""


class Reflection(Part, slot="hint"):
    """Sample tasks with little success once more, with a failed rollout in the prompt and a request to do better.

        mean(past scores of the task) < tau  ->  a further group, whose prompt holds a failed rollout at the task

    Source: R^3 (2026, arXiv:2601.19620), in-context self-reflection. Choices, where the paper says nothing: tau 0.25.
    The failed rollout is drawn uniformly from the newest `ring`. The hint is at the head of the prompt, before the
    first observation, so no history window drops it. Of a long rollout the beginning and the end are shown. The further
    group is compared within itself and trains with the hint in its prompt; it never counts in the task's record.
    `to_unhinted_prompt` (ours) also lets its successes join the task's own group, as if sampled without the hint; their
    ratio is taken against the policy with the hint.
    """

    tau: NonNegativeFloat = 0.25
    """Mean past score below which a task gets a hint."""
    prompt: PromptText = "answer"
    """The text: `answer` (a single response), `rollout` (steps), `terse`, or the path of a file with `$rollout`. The
    text of the file replaces its path, so the run keeps it.
    """
    to_unhinted_prompt: bool = False
    """Whether successes with a hint also train without it, in the group of the task itself."""
    max_tasks: NonNegativeInt = 0
    """Most tasks of an update that get a hint, those of lowest success first; 0 = all below tau."""
    ring: Count = 64
    """Newest rollouts of a task that are candidates."""
    first_words: NonNegativeInt = 512
    """Words shown from the beginning of a rollout that is too long."""
    last_words: NonNegativeInt = 1024
    """Words shown from the end of a rollout that is too long."""
    solved_at: float = 0.5
    """The smallest score of a right rollout."""

    @field_validator("prompt")
    @classmethod
    def _check_prompt(cls, value: str) -> str:
        if "$rollout" not in value and value not in PROMPTS and not may_run():
            raise ConfigError(f"the reflection prompt {quote_line(value)!r} is a file, {WITHOUT_TRUST}")
        text = value if "$rollout" in value else _read_prompt(value)
        template = Template(text)
        if not template.is_valid() or template.get_identifiers() != ["rollout"]:
            raise ConfigError(
                f"the prompt {value!r} does not say `$rollout`, or says more with a dollar sign; put `$rollout` where "
                "the rollout is to stand, and write `$$` for a dollar"
            )
        return value if value in PROMPTS else text

    def words(self) -> tuple[str, ...]:
        """The words of the prompt, for a tokenizer made from scratch."""
        from groupwise.envs.kit.words import vocabulary_of  # with it all environments, which credit alone does without

        return vocabulary_of((Template(self._prompt_text).substitute(rollout=GAP), ">"))

    def choose(self, tasks: Sequence[str], past_rollouts: PastRollouts, *, draw: Draw) -> list[PastRollout]:
        low = {}
        for task in dict.fromkeys(tasks):
            mean = past_rollouts.mean_score(task, max_rollouts=self.ring)  # None: a task without a past gets none
            if mean is not None and mean < self.tau:
                low[task] = mean
        hardest = sorted(low, key=lambda task: low[task])[: self.max_tasks] if self.max_tasks else list(low)
        chosen = []
        for task in (task for task in low if task in hardest):
            failed = [
                past
                for past in past_rollouts.recent(task, max_rollouts=self.ring)
                if past.score < self.solved_at and past.origin == Origin.FRESH
            ]
            if failed:
                chosen.append(failed[int(draw("reflection", task).integers(len(failed)))])
        return chosen

    def text(self, past: Trajectory, say: Callable[[Sequence[int]], str]) -> str:
        """What the prompt shows of a failed rollout: the response, or the observation and action of each step."""
        if len(past.steps) == 1:
            rollout = say(past.steps[0].response_ids)
        else:
            rollout = " ".join(f"{step.observation or ''} > {step.action or ''}" for step in past.steps)
        return Template(self._prompt_text).substitute(rollout=self._cut(rollout)).strip()

    def joins_unhinted_group(self, trajectory: Trajectory) -> bool:
        """Whether a rollout with a hint also trains without it: a success, if the setting asks for it."""
        return self.to_unhinted_prompt and score_of(trajectory) >= self.solved_at

    @property
    def _prompt_text(self) -> str:
        return _read_prompt(self.prompt) if self.prompt in PROMPTS else self.prompt

    def _cut(self, text: str) -> str:
        words = text.split(" ")
        if len(words) <= self.first_words + self.last_words:
            return text
        last = words[len(words) - self.last_words :]
        return " ".join(words[: self.first_words]) + GAP + " ".join(last)


@lru_cache(maxsize=64)
def _read_prompt(name: str) -> str:
    if name in PROMPTS:
        return (files("groupwise.methods") / "reflection_prompts" / f"{name}.txt").read_text(encoding="utf-8").strip()
    try:
        return read_text_file(Path(name)).strip()
    except (OSError, ValueError) as error:
        reason = error.strerror or "" if isinstance(error, OSError) else str(error)
        raise ConfigError(
            f"the reflection prompt {quote_line(repr(name))} cannot be read ({quote_line(reason)}); give the path "
            f"of a text file with `$rollout` in it, or a prompt that there is: {nearest(Path(name).name, PROMPTS)}"
        ) from None
