"""Steps of a task that were sampled from the same branch point."""

from __future__ import annotations

from groupwise.core.parts.part import Part
from groupwise.core.segments import IntArray, pair_labels
from groupwise.core.step_table import StepTable


class ByBranch(Part, slot="grouper"):
    """Compare steps of a task that were sampled from the same branch point, given by the column `branch`.

    Tree rollouts (SPO, PORTool, ARPO) continue several attempts from one place; what comes right after that place can
    be compared. A step whose branch is None was sampled from no branch point and has no group.
    """

    def __call__(self, table: StepTable) -> IntArray:
        return pair_labels(table.task, table.codes("branch"))
