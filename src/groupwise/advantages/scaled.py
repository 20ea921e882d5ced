"""Credit divided by how far a group's credit spreads, and not centred. Axis: S steps."""

from __future__ import annotations

import numpy as np

from groupwise.advantages.scales import Deviation
from groupwise.core.credit import Comparison, Credit
from groupwise.core.parts.part import Part
from groupwise.core.parts.slots import EstimatorPart, GrouperPart, ScalePart
from groupwise.core.segments import Segments
from groupwise.core.step_table import StepTable


class Scaled(Part, slot="estimator"):
    """Divide credit by the spread of its group's credit, and leave its level alone.

        credit = of / scale(of over the group)

    For credit that is a comparison already, such as temporal differences: its mean over a group need not be 0, and says
    something. Edge behaviour: where a group's credit is all equal, there is no spread to divide by, and it becomes 0; a
    step alone in its group, or in none, becomes 0 and counts as not compared.
    """

    of: EstimatorPart
    """The credit that is divided."""
    by: GrouperPart
    """Whose credit the spread is taken over."""
    scale: ScalePart = Deviation()
    """What it is divided by."""

    def __call__(self, table: StepTable) -> Credit:
        inner, groups = self.of(table).trace, Segments.of(table.ask_once(self.by))
        in_company = np.append(groups.size > 1, False)[groups.label]
        differs = in_company & ~np.append(groups.is_constant(inner.values), True)[groups.label]
        scale = groups.spread(self.scale(inner.values, groups), np.nan)
        divisor = np.where(differs & (scale > 0), scale, np.inf)
        trace = Comparison(
            values=inner.values / divisor + 0.0,
            compared=inner.compared & in_company,
            signal=inner.values,
            label=groups.label,
            baseline=np.zeros(len(table)),
            scale=np.where(in_company, scale, np.nan),
            part=self,
            of=inner,
        )
        return Credit.of(table, trace)
