"""Numbers that a run keeps from update to update, the same for all tasks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from groupwise.data.column_checks import to_numbers
from groupwise.data.records import Task
from groupwise.data.segments import FloatArray
from groupwise.data.step_table import StepTable


class NumberState:
    """One number and its column in the step table. A subclass says how an update changes it."""

    def __init__(self, column: str, first: float, *, key: str = "level") -> None:
        self._column, self._key, self._value = column, key, first

    def columns(self, tasks: Sequence[Task]) -> dict[str, FloatArray]:
        return {self._column: np.full(len(tasks), self._value, dtype=np.float64)}

    def state_dict(self) -> dict[str, Any]:
        return {self._key: self._value}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._value = type(self._value)(state[self._key])


def read_remembered(table: StepTable, column: str, first: float) -> float:
    """The number that a table holds in this column; `first` if there is none."""
    return float(to_numbers(column, table.column(column))[0]) if column in table.extra and len(table) else first
