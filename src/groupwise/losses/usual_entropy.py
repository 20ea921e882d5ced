"""What a run remembers of the entropy at each step of its attempts: the memory of EPO. Axis: M tasks."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from groupwise.core.parts.stateful import ObservedUpdate
from groupwise.core.records import Task
from groupwise.core.segments import FloatArray


def name_phase(column: str) -> str:
    """What the step table calls the weight of the phase, beside the usual entropy of that name."""
    return f"{column}_phase"


def weigh_phase(done: int, updates: int) -> float:
    """How much smoothing counts after so many updates of a run: slowly down to 0.8, then exponentially towards 0.

    >>> [round(weigh_phase(done, 150), 4) for done in (0, 74, 75, 150)]
    [1.0, 0.8278, 0.8, 0.0398]
    """
    middle = updates / 2
    if done < middle:
        return 1 - 0.2 * (1 - math.exp(-2 * done / middle))
    return 0.8 * math.exp(-3 * (done - middle) / middle)


class UsualEntropy:
    """What the entropy was at each step of an attempt, so far: the state of `EntropyCorridor`.

    Worked example: two updates, of which only the second reached a third step: means [[1.0, 0.5], [2.0, 0.7, 0.9]]
    make sums [3.0, 1.2, 0.9], counts [2, 2, 1], and 1.5, 0.6, 0.9 were usual; 0 from the fourth step on.
    """

    def __init__(self, column: str, *, updates: int) -> None:
        self._column, self._updates = column, updates
        self._done = 0
        self._sums: list[float] = []
        self._counts: list[int] = []

    def columns(self, tasks: Sequence[Task]) -> Mapping[str, FloatArray]:
        """What was usual by the index of a step, and the weight of the phase; the same for all tasks (M)."""
        usual = [total / count if count else 0.0 for total, count in zip(self._sums, self._counts, strict=True)]
        return {
            self._column: np.tile(np.array([*usual, 0.0], dtype=np.float64), (len(tasks), 1)),
            name_phase(self._column): np.full(len(tasks), weigh_phase(self._done, self._updates), dtype=np.float64),
        }

    def observe(self, update: ObservedUpdate) -> None:
        """Add the update's mean entropy at each index of a step that was reached."""
        self._done = update.number
        entropies: dict[int, list[float]] = {}
        for trajectory in update.trajectories:
            for step in trajectory.steps:
                entropies.setdefault(step.index, []).extend(step.entropy[step.forced :])
        for index in sorted(index for index, values in entropies.items() if values):
            longer = [0] * (index + 1 - len(self._counts))
            self._counts += longer
            self._sums += map(float, longer)
            self._sums[index] += math.fsum(entropies[index]) / len(entropies[index])
            self._counts[index] += 1

    def state_dict(self) -> dict[str, Any]:
        """How many updates are over, and of each index the sum of the means and how many there were."""
        return {"done": self._done, "sums": list(self._sums), "counts": list(self._counts)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from there."""
        self._done = int(state["done"])
        self._sums = [float(total) for total in state["sums"]]
        self._counts = [int(count) for count in state["counts"]]
