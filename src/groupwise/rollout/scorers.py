"""Scorers: calls of a model or a judge before the advantages, and the tools that scorers may use.

Calls are counted, and the results are recorded as step info.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal, Protocol, runtime_checkable

import numpy as np
from pydantic import Field

from groupwise.data.records import FAULTS, Step, Task, Trajectory
from groupwise.data.samples import PolicyRole, PromptAndResponse
from groupwise.data.segments import FloatArray
from groupwise.engines.engine import Generation, Request
from groupwise.parts.algorithm import Algorithm
from groupwise.parts.part import Count, Part, load_catalogue, name_of
from groupwise.parts.slots import Draw
from groupwise.rollout.forks import Fork
from groupwise.rollout.judges import JudgeQuestion
from groupwise.system.errors import ConfigError, RecordError, nearest

NEEDS = frozenset({"generate", "score", "reference", "hidden", "judge", "play", "expert", "fork"})
"""What a scorer may declare that it needs. `score` asks the policy that sampled, `reference` the policy at the start of
the run. `play` runs rollouts in the run's environments, `fork` continues recorded ones, `expert` asks the experts of
environments."""


def sort_by_step(groups: Sequence[Sequence[Trajectory]], info: Iterable[dict[str, Any]]) -> list[Any]:
    """Arrange the info of all steps by group, rollout and step, as a scorer returns it."""
    remaining = iter(info)
    return [[[next(remaining) for _ in trajectory.steps] for trajectory in group] for group in groups]


@dataclass(frozen=True, kw_only=True)
class Continuation:
    """A beginning of an answer that the policy continues.

    Worked example: `Continuation(task=task, forced=step.response_ids[:6], seed=42)` starts a rollout with the first six
    tokens of a recorded answer; the policy samples the rest.
    """

    task: Task
    """The task, from its beginning."""
    forced: tuple[int, ...]
    """Token ids that the first response begins with."""
    seed: int
    """Its seed; take it from `draw`."""


class Tools(Protocol):
    """What a scorer may use in one update; the weights are those that sampled the rollouts."""

    @property
    def temperature(self) -> float:
        """The temperature that responses were sampled at."""

    @property
    def stop_ids(self) -> tuple[int, ...]:
        """The tokens that end a response."""

    def generate(self, requests: Sequence[Request]) -> list[Generation]:
        """Responses to prompts, in the order of the requests; take their seeds from `draw`."""

    def score(
        self, pairs: Sequence[PromptAndResponse], *, temperature: float | None = None, weights: PolicyRole = "current"
    ) -> list[tuple[float, ...]]:
        """Log-probability of each response token; the default temperature is that of sampling."""

    def hidden(self, pairs: Sequence[PromptAndResponse]) -> list[FloatArray]:
        """The policy's last hidden state at each response token: one array (tokens, width) per pair."""

    def judge(self, questions: Sequence[JudgeQuestion]) -> list[float]:
        """The score of the algorithm's judge for each question."""

    def play(self, continuations: Sequence[Continuation], *, extra_tokens: int = 0) -> list[Trajectory]:
        """Run rollouts with these beginnings to their end, with the run's rewards; those with a fault are returned too.

        `extra_tokens` are allowed beyond the run's longest response, for tokens forced in addition to a recorded one.
        """

    def play_forks(self, forks: Sequence[Fork]) -> list[Trajectory]:
        """Run continuations of recorded rollouts to their end; those with a fault are returned too.

        They have the environment's success, but not the run's rewards.
        """

    def ask_expert(self, rollouts: Sequence[Trajectory]) -> list[list[str | None]]:
        """The action of the environment's expert at each step of some rollouts.

        The recorded actions are repeated in new environments. None if the expert knows no action, and after a fault of
        the environment.
        """

    def text(self, ids: Sequence[int]) -> str:
        """The text of ids."""

    def pieces(self, ids: Sequence[int]) -> list[str]:
        """The text of each id, with white space."""

    def encode(self, text: str) -> tuple[int, ...]:
        """The ids of a text."""


@runtime_checkable
class GivesHidden(Protocol):
    """A learner that can return hidden states; outside learners need not."""

    def hidden_states(self, pairs: Sequence[PromptAndResponse]) -> list[FloatArray]:
        """The last hidden state at each response token: one array (tokens, width) per pair."""


def check_learner(algorithm: Algorithm, learner: object) -> None:
    """Raise an error if a scorer needs hidden states and the learner has none."""
    for part in algorithm.scorers or ():
        if "hidden" in part.needs and not isinstance(learner, GivesHidden):
            raise ConfigError(
                f"algorithm.scorers: {name_of(part)} reads hidden states, which {type(learner).__name__} does not "
                "give; add hidden_states to the learner, or leave the scorer out"
            )


def check_scorers(algorithm: Algorithm) -> None:
    """Raise an error for scorers with unknown needs, and parts that read info that no scorer writes.

    A part declares what it reads in `reads`, a scorer what it writes in `writes`; without it, it may write anything.
    """
    _check_read_info(algorithm)
    for part in algorithm.scorers or ():
        for need in sorted(part.needs - NEEDS):
            raise ConfigError(
                f"algorithm.scorers: {name_of(part)} needs {need!r}, which nothing here gives; {nearest(need, NEEDS)}"
            )
        if "judge" in part.needs and algorithm.judge is None:
            raise ConfigError(
                f"algorithm.scorers: {name_of(part)} asks a judge, and there is none; give algorithm.judge"
            )


def _check_read_info(algorithm: Algorithm) -> None:
    """Raise an error if token credit reads info of a built-in scorer that the algorithm does not have."""
    scorers = algorithm.scorers or ()
    if any(not hasattr(part, "writes") for part in scorers):
        return
    written = {info_key for part in scorers for info_key in getattr(part, "writes", ())}
    writers = {
        info_key: kind
        for kind, known in load_catalogue("scorer").items()
        if isinstance(writes := getattr(known, "writes", None), frozenset)
        for info_key in writes
    }
    for part in algorithm.parts():
        if part.slot == "token_credit":
            for info_key in sorted(getattr(part, "reads", frozenset()) - written):
                if info_key in writers:
                    raise ConfigError(
                        f"algorithm.token_credit: {name_of(part)} reads the info value {info_key!r}, which nothing "
                        f"here writes; add the scorer {writers[info_key]!r} to algorithm.scorers"
                    )


# Cutting answers into segments, and continuing from the end of a segment.
#
# A segment end is a number of sampled tokens; the last one is the length of the response. Ends before it are *inner*.

LARGEST_SEED = 2**63


def cut_after_uncertain(logps: Sequence[float], *, max_probability: float, per_segment: int) -> list[int]:
    """End a segment after every `per_segment` tokens that were less likely than `max_probability`.

    >>> cut_after_uncertain([-1.0, 0.0, -1.0, -1.0, 0.0], max_probability=0.9, per_segment=2)
    [3, 5]
    """
    ends, seen = [], 0
    for place, logp in enumerate(logps):
        seen += math.exp(logp) < max_probability
        if seen == per_segment:
            ends.append(place + 1)
            seen = 0
    return [*(end for end in ends if end < len(logps)), len(logps)]


def cut_after_separators(
    pieces: Sequence[str], *, separators: Sequence[str], min_tokens: int, max_segments: int
) -> list[int]:
    """End a segment at each token that completes a separator, if the segment is long enough; too many are merged.

    A separator may span tokens: two line ends are a blank line, whether in one token or two.

    >>> cut_after_separators(["a", ";", "b", "c", ";", "d"], separators=[";"], min_tokens=2, max_segments=16)
    [2, 5, 6]
    >>> cut_after_separators(["a", "\\n", "\\n", "b"], separators=["\\n\\n"], min_tokens=1, max_segments=16)
    [3, 4]
    """
    inner, begin, before = [], 0, ""
    for place, piece in enumerate(pieces[:-1]):
        if place + 1 - begin >= min_tokens and any(_completes(separator, before, piece) for separator in separators):
            inner.append(place + 1)
            begin = place + 1
        before += piece
    if len(inner) >= max_segments:
        num = max_segments - 1
        inner = [inner[(number + 1) * len(inner) // (num + 1)] for number in range(num)]
    return [*inner, len(pieces)]


def _completes(separator: str, before: str, piece: str) -> bool:
    """Whether the end of a separator is in a piece; its beginning may be in the text before."""
    begun = before[max(len(before) - len(separator) + 1, 0) :]
    return separator in begun + piece


def take_sampled(step: Step) -> tuple[int, ...]:
    return step.response_ids[step.forced :]


def take_answer(trajectory: Trajectory, what: str) -> Step:
    """The only step of a rollout; an error if there are several, because only a first answer can be continued."""
    if len(trajectory.steps) != 1:
        raise RecordError(
            f"{trajectory.describe()}: it has {len(trajectory.steps)} steps, but {what} continues parts of a first "
            "response only; use it if a rollout is one response"
        )
    return trajectory.steps[0]


def play_on(
    prefixes: Sequence[tuple[Trajectory, tuple[int, ...]]],
    tools: Tools,
    *,
    draw: Draw,
    times: int,
    extra_tokens: int = 0,
) -> list[list[Trajectory]]:
    """Continue each beginning of an answer `times` times; rollouts that ended with a fault are left out."""
    continuations = [
        Continuation(
            task=trajectory.task,
            forced=forced,
            seed=int(draw(trajectory.task.id, trajectory.rollout, number, len(forced)).integers(LARGEST_SEED)),
        )
        for trajectory, forced in prefixes
        for number in range(times)
    ]
    played = tools.play(continuations, extra_tokens=extra_tokens) if continuations else []
    return [
        [rollout for rollout in played[begin : begin + times] if rollout.stop not in FAULTS and rollout.steps]
        for begin in range(0, len(played), times)
    ]


class JudgeScore(Part, slot="scorer"):
    """Ask the algorithm's judge about every step, and record its score as step info.

    A signal or an estimator reads it as a column: `{ kind = "column", name = "judge_score" }`. All steps of an update
    are asked at once.
    """

    needs: ClassVar[frozenset[str]] = frozenset({"judge"})
    info_key: str = "judge_score"
    """Name of the step info."""
    about: Literal["response", "action"] = "response"
    """What is judged: the response, or the action that was read from it."""

    @property
    def writes(self) -> frozenset[str]:
        return frozenset({self.info_key})

    def __call__(self, groups: Sequence[Sequence[Trajectory]], tools: Tools, *, draw: Draw) -> list[Any]:
        questions = [
            JudgeQuestion(
                task=trajectory.task,
                context=step.observation or "",
                answer=(step.action or "") if self.about == "action" else tools.text(step.response_ids),
                info=step.info,
            )
            for group in groups
            for trajectory in group
            for step in trajectory.steps
        ]
        return sort_by_step(groups, ({self.info_key: float(score)} for score in tools.judge(questions)))


class ReferenceScore(Part, slot="scorer"):
    """Record the log-probability of each response under the reference policy, as the step info `reference_logp`.

        reference_logp = sum over the response's tokens of ln pi_ref(token)

    With it, a KL to the reference can be in the reward of steps (the shaper `reference_kl`), as in RLOO and P3O.
    `by_token` also writes `reference_token_logps`, for the reward of tokens (the token credit `token_return`), as in
    REINFORCE++. Choices: the reference is the policy at the start of the run, after a warm start. Log-probs are at
    `rollout.temperature`, with the prompt that the step trains with. So they are comparable with the recorded ones,
    except for rollouts with a hint, a forced beginning or a temperature of their own. A step without tokens has 0.
    """

    needs: ClassVar[frozenset[str]] = frozenset({"reference"})
    writes: ClassVar[frozenset[str]] = frozenset({"reference_logp", "reference_token_logps"})
    by_token: bool = False
    """Whether the log-prob of each sampled token is recorded too."""

    def __call__(self, groups: Sequence[Sequence[Trajectory]], tools: Tools, *, draw: Draw) -> list[Any]:
        steps = [step for group in groups for trajectory in group for step in trajectory.steps if step.response_ids]
        scored = iter(tools.score([(step.prompt_ids, step.response_ids) for step in steps], weights="reference"))
        return [[[self._tell(step, scored) for step in trajectory.steps] for trajectory in group] for group in groups]

    def _tell(self, step: Step, scored: Iterator[tuple[float, ...]]) -> dict[str, Any]:
        logps = next(scored) if step.response_ids else ()
        info: dict[str, Any] = {"reference_logp": math.fsum(logps)}
        return {**info, "reference_token_logps": list(logps[step.forced :])} if self.by_token else info


class JudgedSegments(Part, slot="scorer"):
    """Cut each response into segments, and record the score of the algorithm's judge for each.

    It writes the step info `judged_ends` (sampled tokens up to the end of each segment) and `judged_scores` (one number
    per segment). The token credits `judged_credit` and `spared_segments` read them. A question has the observation as
    its context, the segment as its answer, and the response before it in `said`.

    Source: process reward models, which score an answer step by step; ProRAG (arXiv:2601.21912) and BCPG-NSA
    (arXiv:2505.14403) read such scores. **Choices.** `algorithm.judge` scores: a rule, a function, or a model behind a
    server. Without separators a response is one segment; with them a segment ends like a line of `forced_answers`.
    Forced tokens come before the first segment. A step without a sampled token has no segment and no question.
    """

    needs: ClassVar[frozenset[str]] = frozenset({"judge"})
    writes: ClassVar[frozenset[str]] = frozenset({"judged_ends", "judged_scores"})
    separators: tuple[Annotated[str, Field(min_length=1)], ...] = ()
    """Texts that end a segment; none = the whole response is one segment."""
    min_tokens: Count = 1
    """Minimum number of tokens of a segment."""
    max_segments: Count = 64
    """Maximum number of segments of a response."""

    def __call__(self, groups: Sequence[Sequence[Trajectory]], tools: Tools, *, draw: Draw) -> list[Any]:
        questions, info = list[JudgeQuestion](), list[list[list[dict[str, Any]]]]()
        for group in groups:
            info.append([])
            for trajectory in group:
                info[-1].append([{"judged_ends": self._cut(step, tools)} for step in trajectory.steps])
                for step, told in zip(trajectory.steps, info[-1][-1], strict=True):
                    for begin, end in zip([0, *told["judged_ends"]], told["judged_ends"], strict=False):
                        question = JudgeQuestion(
                            task=trajectory.task,
                            context=step.observation or "",
                            answer=tools.text(step.response_ids[step.forced + begin : step.forced + end]),
                            said=tools.text(step.response_ids[: step.forced + begin]),
                            info=step.info,
                        )
                        questions.append(question)
        scores = iter(tools.judge(questions) if questions else [])
        for told in [told for group in info for rollout in group for told in rollout]:
            told["judged_scores"] = [float(next(scores)) for _ in told["judged_ends"]]
        return info

    def _cut(self, step: Step, tools: Tools) -> list[int]:
        sampled = take_sampled(step)
        if not sampled:
            return []
        return cut_after_separators(
            tools.pieces(sampled),
            separators=self.separators,
            min_tokens=self.min_tokens,
            max_segments=self.max_segments,
        )


def read_response_states(groups: Sequence[Sequence[Trajectory]], tools: Tools) -> Iterator[FloatArray]:
    """The hidden states (tokens, width) of the sampled tokens, step by step; empty if a step has none.

    One response at a time, because the states of all need too much memory (8 MB for 1,000 tokens of width 1,000).
    """
    for group in groups:
        for trajectory in group:
            for step in trajectory.steps:
                sampled = take_sampled(step)
                if sampled:
                    yield tools.hidden([(step.prompt_ids + step.response_ids[: step.forced], sampled)])[0]
                else:
                    yield np.zeros((0, 0))


class ResponseEmbedding(Part, slot="scorer"):
    """Record an embedding of each response from the policy's hidden states: the step info `embedding`, a list.

        embedding = mean over the sampled tokens of the last hidden state

    Parts that compare answers (by cosine, for example) read it; no other model is needed. **Choices.** Ours: a mean
    over tokens, of the state that has read the token, not scaled to length 1. A step without a sampled token has an
    empty list. The numbers are recorded with the step: the journal grows by the model's width per step.
    """

    needs: ClassVar[frozenset[str]] = frozenset({"hidden"})
    info_key: Annotated[str, Field(min_length=1)] = "embedding"
    """Name of the step info."""

    @property
    def writes(self) -> frozenset[str]:
        return frozenset({self.info_key})

    def __call__(self, groups: Sequence[Sequence[Trajectory]], tools: Tools, *, draw: Draw) -> list[Any]:
        return sort_by_step(
            groups,
            (
                {self.info_key: states.mean(axis=0).tolist() if len(states) else list[float]()}
                for states in read_response_states(groups, tools)
            ),
        )
