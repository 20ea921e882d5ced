"""Groups given by identity alone: the attempts at one task, the steps of one attempt."""

from __future__ import annotations

from groupwise.core.parts.part import Part
from groupwise.core.segments import IntArray
from groupwise.core.step_table import StepTable


class ByTask(Part, slot="grouper"):
    """Compare everything that was done at the same task (GRPO's group)."""

    def __call__(self, table: StepTable) -> IntArray:
        return table.task


class ByAttempt(Part, slot="grouper"):
    """Compare the steps of one attempt with each other."""

    def __call__(self, table: StepTable) -> IntArray:
        return table.attempt
