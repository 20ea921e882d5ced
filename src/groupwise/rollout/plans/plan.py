"""Attempt plans: who is attempted in an update, how often and with what guidance, and which groups are compared."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar, Protocol

from pydantic import Field

from groupwise.core.journal.attempt_index import PastAttempts
from groupwise.core.parts.part import Part, Slot
from groupwise.core.parts.slots import Draw
from groupwise.core.records import Task, Trajectory
from groupwise.rollout.plans.requests import AttemptRequest

Group = Sequence[Trajectory]
"""The attempts at one task that ended without a fault, scored."""


@dataclass(frozen=True, kw_only=True)
class PlayedRound:
    """What came of the requests of one round."""

    requests: Sequence[AttemptRequest] = ()
    """What was asked for."""
    groups: Sequence[Group] = ()
    """The unguided attempts, by task."""
    guided: Sequence[Group] = ()
    """The guided attempts that are compared with one another, by their prompt."""
    joining: Sequence[Group] = ()
    """The guided attempts that join or replace unguided ones, by task."""


@dataclass(frozen=True, kw_only=True)
class Played:
    """What an update has played so far."""

    update: int
    """Number of the update."""
    rounds: Sequence[PlayedRound] = ()
    """Its rounds, oldest first."""

    @property
    def groups(self) -> list[Group]:
        """The unguided groups of all rounds; a task that came twice has two."""
        return [group for played in self.rounds for group in played.groups]

    @property
    def guided(self) -> list[Group]:
        """The groups of all rounds that are compared with one another alone."""
        return [group for played in self.rounds for group in played.guided]


class PlanTools(Protocol):
    """What a plan may ask of its run: fresh tasks, the whole panel, and the tokenizer."""

    @property
    def tasks(self) -> Sequence[Task]:
        """The whole training panel."""

    def fresh(self, num: int) -> list[Task]:
        """The next tasks of the run's curriculum, which goes on by as many."""

    def columns(self, tasks: Sequence[Task]) -> Mapping[str, Mapping[str, float]]:
        """What stateful parts know of tasks, by the name of the column and the id of the task."""

    def encode(self, text: str) -> tuple[int, ...]:
        """Token ids of a text, to be forced."""

    def text(self, token_ids: Sequence[int]) -> str:
        """What a response says."""


class AttemptPlan(Protocol):
    """Fills the slot `plan`: says which tasks are attempted, how often and with what guidance, and which groups count.

    One that says words of its own in guidance also has `words()`, as a template has.
    """

    @property
    def attempts(self) -> int:
        """Attempts that a task gets as a rule, for estimates and for parts that need a certain number."""

    def next(
        self, played: Played, wanted: int, *, tools: PlanTools, past_attempts: PastAttempts, draw: Draw
    ) -> list[AttemptRequest]:
        """What to attempt in the next round; nothing = the update has enough.

        Args:
            played: the rounds of this update so far.
            wanted: `training.tasks`, the groups an update should have.
            tools: what the run can be asked for, such as fresh tasks.
            past_attempts: the attempts of earlier updates, by task.
            draw: random generators by name; the same name gives the same numbers, also after a resume.
        """

    def choose(self, played: Played, wanted: int) -> list[Group]:
        """The groups that go on to be compared, once there are enough."""


class Flat(Part, slot="plan"):
    """The same number of attempts at every task, and that is it."""

    attempts: Annotated[int, Field(ge=2)] = 8
    """Attempts at each task."""
    reads_past_attempts: ClassVar[bool] = False

    def next(
        self, played: Played, wanted: int, *, tools: PlanTools, past_attempts: PastAttempts, draw: Draw
    ) -> list[AttemptRequest]:
        """One round is enough."""
        tasks = [] if played.rounds else tools.fresh(wanted)
        return [AttemptRequest(task=task, attempts=self.attempts) for task in tasks]

    def choose(self, played: Played, wanted: int) -> list[Group]:
        """All of them."""
        return [*played.groups, *played.guided]


class TopUp(Part, slot="plan"):
    """Leave out the groups whose attempts all did equally well, and attempt further tasks in their place.

    Source: dynamic sampling of DAPO (Yu et al. 2025, arXiv:2503.14476): keep a group iff 0 < solved < n, and sample on
    until the batch is full. Choices: a round asks for as many tasks as are missing, not for a whole batch again; what
    is compared is the score `of`, or the return where attempts have no such score, so that a length penalty does not
    make equal answers differ; after `rounds` rounds the update goes on with what there is.
    """

    drops_solved_groups: ClassVar[bool] = True
    """It leaves out tasks that every attempt solved."""
    attempts: Annotated[int, Field(ge=2)] = 8
    """Attempts at each task."""
    rounds: Annotated[int, Field(ge=1)] = 4
    """Most rounds of an update; the first one is counted."""
    of: str = "success"
    """The score that must differ within a group."""
    reads_past_attempts: ClassVar[bool] = False

    def next(
        self, played: Played, wanted: int, *, tools: PlanTools, past_attempts: PastAttempts, draw: Draw
    ) -> list[AttemptRequest]:
        """As many tasks as there are groups too few that teach something."""
        missing = wanted - sum(map(self._teaches, played.groups))
        if len(played.rounds) == self.rounds or missing <= 0:
            return []
        return [AttemptRequest(task=task, attempts=self.attempts) for task in tools.fresh(missing)]

    def choose(self, played: Played, wanted: int) -> list[Group]:
        """The first `wanted` that teach something; where none does, all of them, so that the update says so."""
        teaching = [group for group in played.groups if self._teaches(group)][:wanted]
        return [*(teaching or played.groups), *played.guided]

    def _teaches(self, group: Group) -> bool:
        return len({trajectory.scores.get(self.of, trajectory.scores["return"]) for trajectory in group}) > 1


PlanSlot = Annotated[AttemptPlan, Slot("plan")]
"""A field of a run file that an attempt plan fills."""
