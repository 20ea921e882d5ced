"""A signal that is the larger, the fewer tool calls an attempt made. Axes: S steps, A attempts."""

from __future__ import annotations

from typing import Any

import numpy as np

from groupwise.core.column_checks import quote_value
from groupwise.core.errors import RecordError
from groupwise.core.parts.part import Part
from groupwise.core.segments import FloatArray
from groupwise.core.step_table import StepTable


class ToolEconomy(Part, slot="signal"):
    """One over the tool calls of an attempt and one more, the same for all its steps.

        r = 1 / (T + 1),   T = tool calls of the attempt

    Source: HDPO (2026, arXiv:2604.08545) and its release, which pays it to right answers alone; here the grouper
    `among_solved` sees to that. Choices: T is the sum over an attempt's steps of the column `calls`, whose entries are
    numbers, or lists that are counted; a step without an entry made no call. `calls=None` takes every step but the
    last for a call, for worlds that do not tell: an attempt searches until it answers.
    """

    calls: str | None = "num_calls"
    """The column that has the tool calls of a step; None = every step of an attempt but the last is one."""

    @property
    def reads(self) -> frozenset[str]:
        """The columns that it reads."""
        return frozenset() if self.calls is None else frozenset({self.calls})

    def __call__(self, table: StepTable) -> FloatArray:
        if self.calls is None:
            num_calls_A = table.attempts.size - 1.0
        else:
            entries = table.column(self.calls).tolist()
            num_calls_A = table.attempts.sum(
                np.array([self._count(table, step, entry) for step, entry in enumerate(entries)], dtype=np.float64)
            )
        return table.attempts.spread(1.0 / (num_calls_A + 1.0))

    def _count(self, table: StepTable, step: int, entry: Any) -> float:
        """The calls that one entry of the column stands for."""
        if isinstance(entry, list | tuple):
            return float(len(entry))
        if entry is None or entry != entry:  # NaN is how tables of other libraries write None
            return 0.0
        if isinstance(entry, bool | int | float) and 0 <= entry < float("inf"):
            return float(entry)
        raise RecordError(
            f"{table.describe_step(step)}: the column {self.calls!r} holds {quote_value(entry)}, which is no number of "
            "tool calls; give a number from 0 on, a list of the calls, or None"
        )
