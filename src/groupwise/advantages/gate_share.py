"""How large a share of doubtful attempts a gate lets through, which follows how doubtful they are: the memory of GARDO.

Axis: M tasks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from groupwise.core.parts.stateful import ObservedUpdate
from groupwise.core.records import Task
from groupwise.core.segments import FloatArray
from groupwise.core.step_table import StepTable


class GateShare:
    """The share, and the mean doubt of the last updates: the state of `DoubtGate`.

    Worked example: share 0.1, the last means 0.2 and 0.3. A mean of 0.35 is above all of them: share 0.11. One of 0.25
    leaves it.
    """

    def __init__(
        self,
        column: str,
        measure: Callable[[StepTable], FloatArray],
        *,
        first: float,
        limits: tuple[float, float],
        change: float,
        window: int,
    ) -> None:
        self._column, self._measure = column, measure
        self._limits, self._change, self._window = limits, change, window
        self._share = first
        self._recent: list[float] = []

    def columns(self, tasks: Sequence[Task]) -> Mapping[str, FloatArray]:
        """The share, the same for all tasks (M)."""
        return {self._column: np.full(len(tasks), self._share, dtype=np.float64)}

    def observe(self, update: ObservedUpdate) -> None:
        """Let more through where the attempts that took part are more doubtful than lately, less where less."""
        pairs = zip(update.trajectories, update.credit, strict=True)
        compared = [trajectory for trajectory, credit in pairs if credit is not None and trajectory.steps]
        doubt = self._measure(StepTable.from_trajectories(compared)) if compared else np.zeros(0)
        doubt = doubt[doubt >= 0]
        if not len(doubt):
            return
        mean = float(doubt[0] + (doubt - doubt[0]).sum() / len(doubt))
        lowest, highest = self._limits
        if self._recent and mean > max(self._recent):
            self._share = min(self._share * (1 + self._change), highest)
        elif self._recent and mean < min(self._recent):
            self._share = max(self._share * (1 - self._change), lowest)
        self._recent = [*self._recent, mean][-self._window :]

    def state_dict(self) -> dict[str, Any]:
        """The share and the last means."""
        return {"share": self._share, "recent": list(self._recent)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from there."""
        self._share = float(state["share"])
        self._recent = [float(mean) for mean in state["recent"]]
