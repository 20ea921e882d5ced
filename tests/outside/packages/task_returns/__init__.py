"""Two stateful parts, as a user would write them outside groupwise.

`Surprise` is a signal: what a rollout brought, less the mean of what earlier updates brought at its task. `Rest` is a
filter: a task that was solved rests, by the toss of a coin, through the next update.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from random import Random
from typing import Any

import numpy as np

from groupwise.extend import BoolArray, FloatArray, ObservedUpdate, Part, StepTable, Task


class Surprise(Part, slot="signal"):
    """What a rollout brought, less the mean of all that earlier updates brought at its task."""

    def __call__(self, table: StepTable) -> FloatArray:
        return table.episode_return - np.asarray(table.column("expected"), dtype=np.float64)

    def start(self, *, seed: int) -> Expectations:
        """Begin with no rollout seen."""
        return Expectations()


class Expectations:
    """The returns of each task, as a sum and a count."""

    def __init__(self) -> None:
        self._seen: dict[str, list[float]] = {}

    def columns(self, tasks: Sequence[Task]) -> Mapping[str, FloatArray]:
        """The mean return of each task; 0 where none was seen."""
        return {"expected": np.array([self._mean(task.id) for task in tasks], dtype=np.float64)}

    def observe(self, update: ObservedUpdate) -> None:
        """Add an update's returns."""
        for trajectory in update.trajectories:
            total, count = self._seen.get(trajectory.task.id, [0.0, 0.0])
            brought = math.fsum(step.reward for step in trajectory.steps)
            self._seen[trajectory.task.id] = [total + brought, count + 1.0]

    def state_dict(self) -> dict[str, Any]:
        """Sum and count of each task."""
        return {"seen": self._seen}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on with these."""
        self._seen = {task: list(sums) for task, sums in state["seen"].items()}

    def _mean(self, task: str) -> float:
        total, count = self._seen.get(task, (0.0, 1.0))
        return total / count


class Rest(Part, slot="filter"):
    """A task with credit above 0 in one update rests through the next with this probability."""

    chance: float = 0.5
    """How likely a task is to rest."""

    def __call__(self, table: StepTable) -> BoolArray:
        return np.asarray(table.column("rests") == 0)

    def start(self, *, seed: int) -> Resting:
        """Begin with nobody resting."""
        return Resting(self.chance, seed)


class Resting:
    """Who rests, and the generator that decides on it."""

    def __init__(self, chance: float, seed: int) -> None:
        self._chance, self._draw, self._resting = chance, Random(seed), list[str]()

    def columns(self, tasks: Sequence[Task]) -> Mapping[str, FloatArray]:
        """1 for a task that rests, else 0."""
        return {"rests": np.array([float(task.id in self._resting) for task in tasks])}

    def observe(self, update: ObservedUpdate) -> None:
        """Toss a coin for each task that somebody did well at."""
        credits = zip(update.trajectories, update.credit, strict=True)
        good = {trajectory.task.id for trajectory, credit in credits if credit is not None and max(credit) > 0}
        self._resting = [task for task in sorted(good) if self._draw.random() < self._chance]

    def state_dict(self) -> dict[str, Any]:
        """Who rests, and where the generator stands."""
        version, internal, gauss = self._draw.getstate()
        return {"resting": self._resting, "generator": [version, list(internal), gauss]}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from there."""
        version, internal, gauss = state["generator"]
        self._draw.setstate((version, tuple(internal), gauss))
        self._resting = list(state["resting"])
