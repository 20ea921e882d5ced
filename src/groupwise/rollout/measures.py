"""Measures: what a model or a judge says of attempts before credit is given, and what measures may ask for that.

What is asked is counted, and what comes of it is written down as facts of the steps.
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
from groupwise.parts.part import Part, load_catalogue, name_of
from groupwise.parts.slots import Draw
from groupwise.rollout.forks import Fork
from groupwise.rollout.judges import JudgeQuestion
from groupwise.system.errors import ConfigError, RecordError, nearest

NEEDS = frozenset({"generate", "score", "reference", "hidden", "judge", "play", "expert", "fork"})
"""What a measure may declare that it needs. `score` asks the policy that sampled, `reference` the one that the run
started from; `play` has attempts played to their end in the run's environments, `fork` has them go on from the middle
of recorded ones, `expert` asks what their experts would have done."""


def sort_by_step(groups: Sequence[Sequence[Trajectory]], facts: Iterable[dict[str, Any]]) -> list[Any]:
    """The facts of all steps, one after the other, as a measure gives them: by group, attempt and step."""
    remaining = iter(facts)
    return [[[next(remaining) for _ in trajectory.steps] for trajectory in group] for group in groups]


@dataclass(frozen=True, kw_only=True)
class Continuation:
    """A beginning of an answer that the policy is to go on from.

    Worked example: `Continuation(task=task, forced=step.response_ids[:6], seed=42)` attempts the task with the first
    six tokens of a recorded answer, and whatever the policy says after them.
    """

    task: Task
    """The task to attempt, from its beginning."""
    forced: tuple[int, ...]
    """Ids that the first response begins with."""
    seed: int
    """Where its random numbers come from; take it from `draw`."""


class Tools(Protocol):
    """What the trainer lends a measure for one update; the weights are those that sampled the attempts."""

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
        """Log-probability of each response token; without a temperature, at the one that responses were sampled at."""

    def hidden(self, pairs: Sequence[PromptAndResponse]) -> list[FloatArray]:
        """The policy's last hidden state at each response token: an array of tokens by width for each pair."""

    def judge(self, questions: Sequence[JudgeQuestion]) -> list[float]:
        """What the algorithm's judge says of each question."""

    def play(self, continuations: Sequence[Continuation], *, extra_tokens: int = 0) -> list[Trajectory]:
        """Attempts that begin as told, played to their end and paid as the run's attempts are; a fault is one too.

        `extra_tokens` is room beyond the run's longest response, for what is forced in addition to a recorded one.
        """

    def play_forks(self, forks: Sequence[Fork]) -> list[Trajectory]:
        """Attempts that go on from the middle of recorded ones, played to their end; a fault is one too.

        They are not paid: what the run's rewards would make of them is not known, but whether they succeeded.
        """

    def ask_expert(self, attempts: Sequence[Trajectory]) -> list[list[str | None]]:
        """What the environment's expert would have done in the place of each step of some attempts.

        The recorded actions are carried out again in fresh environments. None where the expert knows nothing, and from
        a fault of the environment on.
        """

    def text(self, ids: Sequence[int]) -> str:
        """What ids say."""

    def pieces(self, ids: Sequence[int]) -> list[str]:
        """What each id says by itself, white space included."""

    def encode(self, text: str) -> tuple[int, ...]:
        """The ids of a text."""


@runtime_checkable
class GivesHidden(Protocol):
    """A learner that can say what its model holds inside; one from elsewhere need not."""

    def hidden_states(self, pairs: Sequence[PromptAndResponse]) -> list[FloatArray]:
        """The last hidden state at each response token: an array of tokens by width for each pair."""


def check_learner(algorithm: Algorithm, learner: object) -> None:
    """Refuse measures of hidden states with a learner that does not give them."""
    for part in algorithm.measures or ():
        if "hidden" in part.needs and not isinstance(learner, GivesHidden):
            raise ConfigError(
                f"algorithm.measures: {name_of(part)} reads hidden states, which {type(learner).__name__} does not "
                "give; add hidden_states to the learner, or leave the measure out"
            )


def check_measures(algorithm: Algorithm) -> None:
    """Refuse measures that need what nothing here gives, and parts that read what none writes; before a model loads.

    A part says what it reads in `reads`, a measure what it writes in `writes`; without that it may write anything.
    """
    _check_read_facts(algorithm)
    for part in algorithm.measures or ():
        for need in sorted(part.needs - NEEDS):
            raise ConfigError(
                f"algorithm.measures: {name_of(part)} needs {need!r}, which nothing here gives; {nearest(need, NEEDS)}"
            )
        if "judge" in part.needs and algorithm.judge is None:
            raise ConfigError(
                f"algorithm.measures: {name_of(part)} asks a judge, and there is none; give algorithm.judge"
            )


def _check_read_facts(algorithm: Algorithm) -> None:
    """Refuse token credit whose facts a measure of groupwise writes, where no measure here may write them."""
    measures = algorithm.measures or ()
    if any(not hasattr(part, "writes") for part in measures):
        return
    written = {fact for part in measures for fact in getattr(part, "writes", ())}
    writers = {
        fact: kind
        for kind, known in load_catalogue("measure").items()
        if isinstance(writes := getattr(known, "writes", None), frozenset)
        for fact in writes
    }
    for part in algorithm.parts():
        if part.slot == "token_credit":
            for fact in sorted(getattr(part, "reads", frozenset()) - written):
                if fact in writers:
                    raise ConfigError(
                        f"algorithm.token_credit: {name_of(part)} reads the fact {fact!r}, which nothing here writes; "
                        f"add the measure {writers[fact]!r} to algorithm.measures"
                    )


# Cutting answers into segments, and playing on from where a segment ends.
#
# A segment end is a number of sampled tokens; the last one is the length of the response. Ends before it are *inner*.

LARGEST_SEED = 2**63


def cut_after_uncertain(logps: Sequence[float], *, max_probability: float, per_segment: int) -> list[int]:
    """End a segment after every so many tokens that were less likely than `max_probability`.

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
    """End a segment after each token with which a separator is complete, if it has enough tokens; too many are merged.

    Tokens may cut a separator: two line ends are a blank line, whether or not one token holds both.

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
    """Whether a piece of text holds the end of a separator, which may have begun before it."""
    begun = before[max(len(before) - len(separator) + 1, 0) :]
    return separator in begun + piece


def take_sampled(step: Step) -> tuple[int, ...]:
    return step.response_ids[step.forced :]


def take_answer(trajectory: Trajectory, what: str) -> Step:
    """The one step of an attempt; attempts of several are refused, since only a first answer can be gone on from."""
    if len(trajectory.steps) != 1:
        raise RecordError(
            f"{trajectory.describe()}: it has {len(trajectory.steps)} steps, and "
            f"{what} goes on from parts of a first answer alone; use it where an attempt is one answer"
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
    """Go on from beginnings of answers, so many times each; attempts that a fault ended are left out."""
    continuations = [
        Continuation(
            task=trajectory.task,
            forced=forced,
            seed=int(draw(trajectory.task.id, trajectory.attempt, number, len(forced)).integers(LARGEST_SEED)),
        )
        for trajectory, forced in prefixes
        for number in range(times)
    ]
    played = tools.play(continuations, extra_tokens=extra_tokens) if continuations else []
    return [
        [attempt for attempt in played[begin : begin + times] if attempt.stop not in FAULTS and attempt.steps]
        for begin in range(0, len(played), times)
    ]


class JudgeScore(Part, slot="measure"):
    """Ask the algorithm's judge about every step, and write its number down as a fact.

    A signal or an estimator reads it as a column of that name: `{ kind = "column", name = "judge_score" }`. All steps
    of an update are asked about at once.
    """

    needs: ClassVar[frozenset[str]] = frozenset({"judge"})
    fact: str = "judge_score"
    """What the fact is called."""
    about: Literal["response", "action"] = "response"
    """What is judged: everything that was said, or the action that was read out of it."""

    @property
    def writes(self) -> frozenset[str]:
        return frozenset({self.fact})

    def __call__(self, groups: Sequence[Sequence[Trajectory]], tools: Tools, *, draw: Draw) -> list[Any]:
        questions = [
            JudgeQuestion(
                task=trajectory.task,
                context=step.observation or "",
                answer=self._answer(step, tools),
                facts=step.facts,
            )
            for group in groups
            for trajectory in group
            for step in trajectory.steps
        ]
        scores = iter(tools.judge(questions))
        return [
            [[{self.fact: float(next(scores))} for _ in trajectory.steps] for trajectory in group] for group in groups
        ]

    def _answer(self, step: Step, tools: Tools) -> str:
        return (step.action or "") if self.about == "action" else tools.text(step.response_ids)


class ReferenceScore(Part, slot="measure"):
    """Write down the log-probability of each response under the reference policy, as the fact `reference_logp`.

        reference_logp = sum over the response's tokens of ln pi_ref(token)

    With it a KL to the reference can stand in the reward of steps (the shaper `reference_kl`), as RLOO and P3O publish
    it; `by_token` also writes `reference_token_logps`, for the reward of tokens (the token credit `token_return`), as
    REINFORCE++ has it. Choices: the reference is the policy that the run started from, after a warm start; log-probs
    are taken at `rollout.temperature` and given the prompt that the step trains with, so that they can be compared with
    the recorded ones, but for attempts with guidance, a forced beginning or a temperature of their own. A step without
    tokens has 0.
    """

    needs: ClassVar[frozenset[str]] = frozenset({"reference"})
    writes: ClassVar[frozenset[str]] = frozenset({"reference_logp", "reference_token_logps"})
    by_token: bool = False
    """Whether the log-prob of each sampled token is written down too."""

    def __call__(self, groups: Sequence[Sequence[Trajectory]], tools: Tools, *, draw: Draw) -> list[Any]:
        steps = [step for group in groups for trajectory in group for step in trajectory.steps if step.response_ids]
        scored = iter(tools.score([(step.prompt_ids, step.response_ids) for step in steps], weights="reference"))
        return [[[self._tell(step, scored) for step in trajectory.steps] for trajectory in group] for group in groups]

    def _tell(self, step: Step, scored: Iterator[tuple[float, ...]]) -> dict[str, Any]:
        logps = next(scored) if step.response_ids else ()
        facts: dict[str, Any] = {"reference_logp": math.fsum(logps)}
        return {**facts, "reference_token_logps": list(logps[step.forced :])} if self.by_token else facts


class JudgedSegments(Part, slot="measure"):
    """Cut each response into segments, and write down what the algorithm's judge says of each.

    It writes the facts `judged_ends` (sampled tokens up to the end of each segment) and `judged_scores` (a number a
    segment). The token credits `judged_credit` and `spared_segments` read them. A question has the observation as its
    context, the segment as its answer, and in `said` what the response said before it.

    Source: process reward models, which score an answer step by step; ProRAG (arXiv:2601.21912) and BCPG-NSA
    (arXiv:2505.14403) read such scores. **Choices.** The scorer is whatever `algorithm.judge` is: a rule, a function,
    or a model behind a server. Without separators a response is one segment, as where every search is a step by itself;
    with them a segment ends as a line of `forced_answers` does. Forced tokens are said before the first segment. A step
    without a sampled token has no segment, and nobody is asked about it.
    """

    needs: ClassVar[frozenset[str]] = frozenset({"judge"})
    writes: ClassVar[frozenset[str]] = frozenset({"judged_ends", "judged_scores"})
    separators: tuple[Annotated[str, Field(min_length=1)], ...] = ()
    """What a segment ends with; none = the whole response is one."""
    min_tokens: Annotated[int, Field(ge=1)] = 1
    """Tokens that a segment has at least."""
    max_segments: Annotated[int, Field(ge=1)] = 64
    """Segments that a response has at most."""

    def __call__(self, groups: Sequence[Sequence[Trajectory]], tools: Tools, *, draw: Draw) -> list[Any]:
        questions, facts = list[JudgeQuestion](), list[list[list[dict[str, Any]]]]()
        for group in groups:
            facts.append([])
            for trajectory in group:
                facts[-1].append([{"judged_ends": self._cut(step, tools)} for step in trajectory.steps])
                for step, told in zip(trajectory.steps, facts[-1][-1], strict=True):
                    for begin, end in zip([0, *told["judged_ends"]], told["judged_ends"], strict=False):
                        question = JudgeQuestion(
                            task=trajectory.task,
                            context=step.observation or "",
                            answer=tools.text(step.response_ids[step.forced + begin : step.forced + end]),
                            said=tools.text(step.response_ids[: step.forced + begin]),
                            facts=step.facts,
                        )
                        questions.append(question)
        scores = iter(tools.judge(questions) if questions else [])
        for told in [told for group in facts for attempt in group for told in attempt]:
            told["judged_scores"] = [float(next(scores)) for _ in told["judged_ends"]]
        return facts

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
    """The hidden states of each step's sampled tokens, tokens by width, step after step; none where none was sampled.

    One response at a time: the states of all are too many to keep (8 MB for 1,000 tokens of width 1,000), so a measure
    makes its numbers of each before it takes the next.
    """
    for group in groups:
        for trajectory in group:
            for step in trajectory.steps:
                sampled = take_sampled(step)
                if sampled:
                    yield tools.hidden([(step.prompt_ids + step.response_ids[: step.forced], sampled)])[0]
                else:
                    yield np.zeros((0, 0))


class ResponseEmbedding(Part, slot="measure"):
    """Write down where each response lies among the policy's hidden states: the fact `embedding`, a list of numbers.

        embedding = mean over the sampled tokens of the last hidden state

    Parts that ask how alike answers are (by their cosine, say) read it; no other model is needed. **Choices.** Ours: a
    mean over tokens, of the state that has read the token. Numbers are kept as they are, not scaled to length 1. A step
    without a sampled token has no numbers. They are written with the step, so a journal grows by the model's width in
    numbers a step.
    """

    needs: ClassVar[frozenset[str]] = frozenset({"hidden"})
    fact: Annotated[str, Field(min_length=1)] = "embedding"
    """What the fact is called."""

    @property
    def writes(self) -> frozenset[str]:
        return frozenset({self.fact})

    def __call__(self, groups: Sequence[Sequence[Trajectory]], tools: Tools, *, draw: Draw) -> list[Any]:
        points = (
            states.mean(axis=0).tolist() if len(states) else list[float]()
            for states in read_response_states(groups, tools)
        )
        return [[[{self.fact: next(points)} for _ in trajectory.steps] for trajectory in group] for group in groups]
