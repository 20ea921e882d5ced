"""Steps that were taken by the same player, at one task or at all of them."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from groupwise.core.parts.part import Part
from groupwise.core.segments import IntArray, pair_labels
from groupwise.core.step_table import StepTable


class ByRole(Part, slot="grouper"):
    """Compare steps of a task that the same player or agent took; a table without `role` has one player.

    Source: MARS (thu-nics), whose (player, game) pair is (role, task) here.
    """

    def __call__(self, table: StepTable) -> IntArray:
        if "role" not in table.extra:
            return table.task
        return pair_labels(table.task, table.codes("role"))


class ByPlayer(Part, slot="grouper"):
    """Compare all steps that the same player or agent took, at whatever task; a table without `role` has one player.

    Source: MARS (thu-nics), which normalises credit per player over all games. This part mixes tasks by design. A step
    whose role is None has no group.
    """

    mixes_tasks: ClassVar[bool] = True

    def __call__(self, table: StepTable) -> IntArray:
        if "role" not in table.extra:
            return np.zeros(len(table), dtype=np.int64)
        return table.codes("role")
