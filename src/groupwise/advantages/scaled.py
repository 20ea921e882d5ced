"""Credit divided by how far a group's credit spreads, and not centred.

Axes: S steps, N members, M groups.
"""

from __future__ import annotations

import numpy as np

from groupwise.advantages.scales import Epsilon
from groupwise.core.credit import Comparison, Credit
from groupwise.core.parts.part import Part
from groupwise.core.parts.slots import EstimatorPart, GrouperPart, ScalePart
from groupwise.core.segments import FloatArray, Segments
from groupwise.core.step_table import StepTable


class RootMeanSquare(Part, slot="scale"):
    """How far members lie from 0: the root of their mean square, plus eps.

        scale = sqrt(sum_i x_i^2 / n) + eps

    For numbers that are differences already, and whose mean is not taken off. Credit divided by it is at most sqrt(n).
    """

    eps: Epsilon = 1e-6
    """Added to the root."""

    def __call__(self, values: FloatArray, groups: Segments) -> FloatArray:
        return np.sqrt(groups.sum(values**2) / groups.size) + self.eps


class Scaled(Part, slot="estimator"):
    """Divide credit by the spread of its group's credit, and leave its level alone.

        credit = of / scale(of over the group)

    For credit that is a comparison already, such as temporal differences: its mean over a group need not be 0, and says
    something. Hence the spread about 0: a deviation about the mean would be next to nothing where all did equally well,
    and credit next to infinite. Edge behaviour: a step alone in its group, or in none, becomes 0 and counts as not
    compared.
    """

    of: EstimatorPart
    """The credit that is divided."""
    by: GrouperPart
    """Whose credit the spread is taken over."""
    scale: ScalePart = RootMeanSquare()
    """What it is divided by."""

    def __call__(self, table: StepTable) -> Credit:
        inner, groups = self.of(table).trace, Segments.of(table.ask_once(self.by))
        in_company = np.append(groups.size > 1, False)[groups.label]
        scale = groups.spread(self.scale(inner.values, groups), np.nan)
        divisor = np.where(in_company & (scale > 0), scale, np.inf)
        trace = Comparison(
            values=inner.values / divisor + 0.0,
            compared=inner.compared & in_company,
            signal=inner.values,
            label=groups.label,
            baseline=np.zeros(len(table)),
            scale=np.where(in_company, scale, np.nan),
            part=self,
            of=inner,
            divides_only=True,
        )
        return Credit.of(table, trace)
