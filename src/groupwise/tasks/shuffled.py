"""The shuffled curriculum: every task once, in random order, then all over again in another order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random
from typing import Annotated, Any

from pydantic import Field

from groupwise.core.parts.part import Part
from groupwise.core.records import Task, Trajectory
from groupwise.core.seeds import seed_of


class Shuffled(Part, slot="curriculum"):
    """Go through the panel by turns, shuffled anew each time round."""

    first: Annotated[int, Field(ge=0)] = 0
    """Only so many tasks of the panel, from the first; 0 = all. Fewer come round sooner, which replay lives on."""

    def start(self, tasks: Sequence[Task], seed: int) -> ShuffledTurns:
        """Begin with a panel."""
        return ShuffledTurns(tasks[: self.first] if self.first else tasks, seed)


class ShuffledTurns:
    """A panel being gone through. Its whole state is how many tasks it has handed out."""

    def __init__(self, tasks: Sequence[Task], seed: int) -> None:
        self._tasks, self._seed = tasks, seed
        self._handed_out = 0
        self._turn, self._order = -1, list[int]()

    def next(self, num: int) -> list[Task]:
        """The next tasks; only where more are asked for than the panel has does one come twice."""
        tasks = [self._task_at(self._handed_out + i) for i in range(num)]
        self._handed_out += num
        return tasks

    def observe(self, played: Sequence[Trajectory]) -> None:
        """How attempts went changes nothing here."""

    def state_dict(self) -> dict[str, Any]:
        """How many tasks were handed out."""
        return {"handed_out": self._handed_out}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on after that many."""
        self._handed_out = int(state["handed_out"])

    def _task_at(self, position: int) -> Task:
        turn, place = divmod(position, len(self._tasks))
        if turn != self._turn:
            self._turn, self._order = turn, list(range(len(self._tasks)))
            Random(seed_of(self._seed, "panel", turn)).shuffle(self._order)
        return self._tasks[self._order[place]]
