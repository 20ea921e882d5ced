"""What a measure may ask: the engine, the policy of now and that of the beginning, and the judge.

A protocol; the trainer fills it. What is asked is counted, and what comes of it is written down as facts of the steps.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from groupwise.data.records import Task, Trajectory
from groupwise.data.samples import PolicyRole, PromptAndResponse
from groupwise.data.segments import FloatArray
from groupwise.engines.engine import Generation, Request
from groupwise.parts.algorithm import Algorithm
from groupwise.parts.part import load_catalogue, name_of
from groupwise.rollout.forks import Fork
from groupwise.rollout.judges.protocol import JudgeQuestion
from groupwise.system.errors import ConfigError, nearest

NEEDS = frozenset({"generate", "score", "reference", "hidden", "judge", "play", "expert", "fork"})
"""What a measure may declare that it needs. `score` asks the policy that sampled, `reference` the one that the run
started from; `play` has attempts played to their end in the run's environments, `fork` has them go on from the middle
of recorded ones, `expert` asks what their experts would have done."""


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
