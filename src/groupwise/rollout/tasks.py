"""Curricula: they hand out tasks, are told how these went, and their state can be saved and loaded."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from random import Random
from typing import Annotated, Any, Protocol

from pydantic import Field

from groupwise.data.records import Task, Trajectory
from groupwise.data.seeds import seed_of
from groupwise.envs.mixture import choose_next
from groupwise.parts.part import Part, Slot
from groupwise.parts.requirements import check_drawn_tasks


class LiveCurriculum(Protocol):
    """A curriculum at work. Its state goes into checkpoints, as plain JSON values."""

    def next(self, num: int) -> list[Task]:
        """The next tasks to attempt; a task may come twice."""

    def observe(self, played: Sequence[Trajectory]) -> None:
        """Take in how an update's attempts went."""

    def state_dict(self) -> dict[str, Any]:
        """Its state: what it must know to go on as if it had never stopped."""

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a saved state."""


class Curriculum(Protocol):
    """Fills the slot `curriculum`: says which tasks of the panel come next."""

    def start(self, tasks: Sequence[Task], seed: int) -> LiveCurriculum:
        """Begin with a panel."""


CurriculumSlot = Annotated[Curriculum, Slot("curriculum")]
"""A field of a run file that a curriculum fills."""


class Shuffled(Part, slot="curriculum"):
    """Go through the panel by turns, shuffled anew each time round."""

    first: Annotated[int, Field(ge=0)] = 0
    """Only so many tasks of the panel, from the first; 0 = all. Fewer come round sooner, which replay lives on."""

    def start(self, tasks: Sequence[Task], seed: int) -> ShuffledTurns:
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
        return {"handed_out": self._handed_out}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._handed_out = int(state["handed_out"])

    def _task_at(self, position: int) -> Task:
        turn, place = divmod(position, len(self._tasks))
        if turn != self._turn:
            self._turn, self._order = turn, list(range(len(self._tasks)))
            Random(seed_of(self._seed, "panel", turn)).shuffle(self._order)
        return self._tasks[self._order[place]]


# The curricula of several environments: each goes through its own tasks, and weights say whose turn it is.


class MixedTurns:
    """Several curricula at work. Shares hold over the whole run, and in each update as near as whole tasks allow."""

    def __init__(
        self,
        curricula: Mapping[str, LiveCurriculum],
        *,
        weights: Mapping[str, float],
        name_of: Callable[[Task], str],
    ) -> None:
        """Mix curricula by the name of their environment; `weights` is what each counts, `name_of` whose a task is."""
        self._curricula, self._weights, self._name_of = curricula, weights, name_of
        self._handed_out = dict.fromkeys(curricula, 0)

    def next(self, num: int) -> list[Task]:
        names = []
        for _ in range(num):
            name = choose_next(self._weights, self._handed_out)
            self._handed_out[name] += 1
            names.append(name)
        drawn: dict[str, Iterator[Task]] = {}
        for name in dict.fromkeys(names):
            tasks = self._curricula[name].next(names.count(name))
            check_drawn_tasks(self._curricula[name], tasks, names.count(name))
            drawn[name] = iter(tasks)
        return [next(drawn[name]) for name in names]

    def observe(self, played: Sequence[Trajectory]) -> None:
        for name, curriculum in self._curricula.items():
            curriculum.observe([trajectory for trajectory in played if self._name_of(trajectory.task) == name])

    def state_dict(self) -> dict[str, Any]:
        states = {name: curriculum.state_dict() for name, curriculum in self._curricula.items()}
        return {"handed_out": dict(self._handed_out), "curricula": states}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._handed_out = {name: int(state["handed_out"][name]) for name in self._curricula}
        for name, curriculum in self._curricula.items():
            curriculum.load_state_dict(state["curricula"][name])
