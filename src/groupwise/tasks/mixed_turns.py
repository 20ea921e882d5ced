"""The curricula of several environments: each goes through its own tasks, and weights say whose turn it is."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from groupwise.core.parts.attempt_results import check_drawn_tasks
from groupwise.core.records import Task, Trajectory
from groupwise.core.weighted_turns import choose_next
from groupwise.tasks.curriculum import LiveCurriculum


class MixedTurns:
    """Several curricula at work. Shares hold over the whole run, and in each update as near as whole tasks allow."""

    def __init__(
        self,
        curricula: Mapping[str, LiveCurriculum],
        *,
        weights: Mapping[str, float],
        name_of: Callable[[Task], str],
    ) -> None:
        """Mix curricula.

        Args:
            curricula: by the name of their environment.
            weights: what each counts.
            name_of: which of them a task is of.
        """
        self._curricula, self._weights, self._name_of = curricula, weights, name_of
        self._handed_out = dict.fromkeys(curricula, 0)

    def next(self, num: int) -> list[Task]:
        """The next tasks; their environments take turns by weight."""
        names = []
        for _ in range(num):
            name = choose_next(self._weights, self._handed_out)
            self._handed_out[name] += 1
            names.append(name)
        drawn = {name: self._draw(name, names.count(name)) for name in dict.fromkeys(names)}
        return [next(drawn[name]) for name in names]

    def _draw(self, name: str, num: int) -> Iterator[Task]:
        tasks = self._curricula[name].next(num)
        check_drawn_tasks(self._curricula[name], tasks, num)
        return iter(tasks)

    def observe(self, played: Sequence[Trajectory]) -> None:
        """Tell each curriculum how its own tasks went."""
        for name, curriculum in self._curricula.items():
            curriculum.observe([trajectory for trajectory in played if self._name_of(trajectory.task) == name])

    def state_dict(self) -> dict[str, Any]:
        """How many tasks each has handed out, and the state of each."""
        states = {name: curriculum.state_dict() for name, curriculum in self._curricula.items()}
        return {"handed_out": dict(self._handed_out), "curricula": states}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from there."""
        self._handed_out = {name: int(state["handed_out"][name]) for name in self._curricula}
        for name, curriculum in self._curricula.items():
            curriculum.load_state_dict(state["curricula"][name])
