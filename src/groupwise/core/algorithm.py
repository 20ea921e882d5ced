"""An algorithm: the parts that a recipe puts together."""

from __future__ import annotations

import numpy as np

from groupwise.core.parts import EstimatorPart, FilterPart, LossPart, Part
from groupwise.core.segments import BoolArray
from groupwise.core.step_table import StepTable


class Algorithm(Part):
    """Everything that makes a method: how steps earn credit, which of them may train, and what is minimised.

    >>> from groupwise import StepTable, recipes
    >>> table = StepTable.from_columns(task=["t", "t"], attempt=[0, 1], index=[0, 0], reward=[1.0, 0.0])
    >>> recipes.dr_grpo().advantage(table).values.tolist()
    [0.5, -0.5]
    """

    advantage: EstimatorPart
    """Turns a step table into credit."""
    filters: tuple[FilterPart, ...] = ()
    """Which steps may train; a step must pass all of them. Statistics still count the steps they drop."""
    loss: LossPart | None = None
    """What is minimised; None = the algorithm gives credit only."""

    def keep(self, table: StepTable) -> BoolArray:
        """Which rows may train, in the order of the rows handed in (N)."""
        kept = np.ones(len(table), dtype=np.bool_)
        for admits in self.filters:
            kept &= admits(table)
        return kept[table.step_of_row]
