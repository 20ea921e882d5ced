"""Steps of a task that were taken by the same player."""

from __future__ import annotations

from groupwise.core.parts import Part
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
