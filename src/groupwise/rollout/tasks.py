"""Curricula: they choose the next tasks, receive the results, and their state can be saved and loaded."""

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
    """A running curriculum. Its state is saved in checkpoints, as JSON values."""

    def next(self, num: int) -> list[Task]:
        """The next tasks; a task may be returned twice."""

    def observe(self, played: Sequence[Trajectory]) -> None:
        """Receive the rollouts of an update."""

    def state_dict(self) -> dict[str, Any]:
        """The state that it needs to continue as if it had never stopped."""

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a saved state."""


class Curriculum(Protocol):
    """Fills the slot `curriculum`: chooses the next tasks of the train set."""

    def start(self, tasks: Sequence[Task], seed: int) -> LiveCurriculum:
        """Start on a task set."""


CurriculumSlot = Annotated[Curriculum, Slot("curriculum")]
"""A run-file field for a curriculum."""


class Shuffled(Part, slot="curriculum"):
    """Go through the task set again and again, each time in a new random order."""

    first: Annotated[int, Field(ge=0)] = 0
    """Use only the first tasks of the task set, this many; 0 = all. Fewer tasks repeat sooner, which replay needs."""

    def start(self, tasks: Sequence[Task], seed: int) -> ShuffledTurns:
        return ShuffledTurns(tasks[: self.first] if self.first else tasks, seed)


class ShuffledTurns:
    """Tasks in random order, in turns. Its only state is how many tasks it has returned."""

    def __init__(self, tasks: Sequence[Task], seed: int) -> None:
        self._tasks, self._seed = tasks, seed
        self._handed_out = 0
        self._turn, self._order = -1, list[int]()

    def next(self, num: int) -> list[Task]:
        """The next tasks; no task comes twice in a turn."""
        tasks = list[Task]()
        for position in range(self._handed_out, self._handed_out + num):
            turn, place = divmod(position, len(self._tasks))
            if turn != self._turn:
                self._turn, self._order = turn, list(range(len(self._tasks)))
                Random(seed_of(self._seed, "panel", turn)).shuffle(self._order)
            tasks.append(self._tasks[self._order[place]])
        self._handed_out += num
        return tasks

    def observe(self, played: Sequence[Trajectory]) -> None:
        """Results are not used."""

    def state_dict(self) -> dict[str, Any]:
        return {"handed_out": self._handed_out}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._handed_out = int(state["handed_out"])


# The curricula of several environments: each has its own tasks, and weights choose between the environments.


class MixedTurns:
    """Several running curricula. Their fractions hold over the whole run, and in each update up to whole tasks."""

    def __init__(
        self, curricula: Mapping[str, LiveCurriculum], *, weights: Mapping[str, float], name_of: Callable[[Task], str]
    ) -> None:
        """Mix curricula by environment name; `weights` has the weight of each, `name_of` gives the name for a task."""
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
