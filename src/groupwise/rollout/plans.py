"""Attempt plans: how many attempts a task gets, and when an update has enough groups."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Protocol

from pydantic import Field

from groupwise.core.parts import Part, Slot
from groupwise.core.records import Trajectory

Group = Sequence[Trajectory]
"""The attempts at one task that ended without a fault."""


class Plan(Protocol):
    """Fills the slot `plan`."""

    @property
    def attempts(self) -> int:
        """Attempts at each task."""

    def missing(self, rounds: Sequence[Sequence[Group]], wanted: int) -> int:
        """How many more tasks to attempt, after the groups that each round brought; 0 = enough."""

    def chosen(self, groups: Sequence[Group], wanted: int) -> list[Group]:
        """The groups that go on to be compared."""


class Flat(Part, slot="plan"):
    """The same number of attempts at every task, and that is it."""

    attempts: Annotated[int, Field(ge=2)] = 8
    """Attempts at each task."""

    def missing(self, rounds: Sequence[Sequence[Group]], wanted: int) -> int:
        """One round is enough."""
        return 0 if rounds else wanted

    def chosen(self, groups: Sequence[Group], wanted: int) -> list[Group]:
        """All of them."""
        return list(groups)


class TopUp(Part, slot="plan"):
    """Leave out the groups whose attempts all did equally well, and attempt further tasks in their place.

    Source: dynamic sampling of DAPO (Yu et al. 2025, arXiv:2503.14476): keep a group iff 0 < solved < n, and sample on
    until the batch is full. Choices: a round asks for as many tasks as are missing, not for a whole batch again; what
    is compared is the score `of`, or the return where attempts have no such score, so that a length penalty does not
    make equal answers differ; after `rounds` rounds the update goes on with what there is.
    """

    attempts: Annotated[int, Field(ge=2)] = 8
    """Attempts at each task."""
    rounds: Annotated[int, Field(ge=1)] = 4
    """Most rounds of an update; the first one is counted."""
    of: str = "success"
    """The score that must differ within a group."""

    def missing(self, rounds: Sequence[Sequence[Group]], wanted: int) -> int:
        """As many as there are groups too few that teach something."""
        if len(rounds) == self.rounds:
            return 0
        return max(wanted - sum(self._teaches(group) for groups in rounds for group in groups), 0)

    def chosen(self, groups: Sequence[Group], wanted: int) -> list[Group]:
        """The first `wanted` that teach something; where none does, all of them, so that the update says so."""
        return [group for group in groups if self._teaches(group)][:wanted] or list(groups)

    def _teaches(self, group: Group) -> bool:
        return len({trajectory.scores.get(self.of, trajectory.scores["return"]) for trajectory in group}) > 1


PlanSlot = Annotated[Plan, Slot("plan")]
"""A field of a run file that an attempt plan fills."""
