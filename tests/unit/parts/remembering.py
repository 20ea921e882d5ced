"""Stateful parts for the unit tests: a signal that counts, and states that do something wrong."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from groupwise import Part, StepTable, Task
from groupwise.data.segments import FloatArray
from groupwise.parts.stateful import ObservedUpdate


class CountState:
    """How many updates were heard of, and with which seed it began."""

    def __init__(self, column: str, seed: int) -> None:
        self.column, self.seed, self.heard = column, seed, list[ObservedUpdate]()
        self.count = 0

    def columns(self, tasks: Sequence[Task]) -> Mapping[str, FloatArray]:
        return {self.column: np.full(len(tasks), float(self.count))}

    def observe(self, update: ObservedUpdate) -> None:
        self.count += 1
        self.heard.append(update)

    def state_dict(self) -> dict[str, Any]:
        return {"count": self.count}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.count = int(state["count"])


class Count(Part, slot="signal"):
    """The number of updates that were heard of before this one."""

    column: str = "count"
    """What the table calls it."""

    def __call__(self, table: StepTable) -> FloatArray:
        return np.asarray(table.column(self.column), dtype=np.float64)

    def start(self, *, seed: int) -> CountState:
        """Begin at 0."""
        return CountState(self.column, seed)
