"""Credit averaged over the steps of a group in which several attempts meet (SALT)."""

from __future__ import annotations

from typing import Literal

import numpy as np

from groupwise.core.credit import Credit, Shared
from groupwise.core.parts.part import Part
from groupwise.core.parts.slots import EstimatorPart, GrouperPart
from groupwise.core.segments import NOT_COMPARABLE, Segments, pair_labels
from groupwise.core.step_table import StepTable


class Merged(Part, slot="estimator"):
    """Give the steps of a group their mean credit, where at least two attempts meet in it; others keep their own.

    Source: SALT, arXiv:2510.20022. Choice: an attempt that passes several times counts once (`count="attempt"`), with
    its mean over the passes, or each pass counts (`count="step"`).
    """

    of: EstimatorPart
    """The credit that is shared."""
    by: GrouperPart
    """Which steps share it."""
    count: Literal["attempt", "step"] = "attempt"
    """Who counts in the mean."""

    def __call__(self, table: StepTable) -> Credit:
        inner, label = self.of(table).trace, table.ask_once(self.by)
        passes = Segments.of(pair_labels(label, table.attempt))
        attempts = Segments.of(label[passes.first])
        groups = Segments.of(label)
        met = np.append(attempts.size >= 2, False)[groups.label]
        once = self.count == "attempt"
        mean = attempts.mean(passes.mean(inner.values)) if once else groups.mean(inner.values)
        trace = Shared(
            values=np.where(met, groups.spread(mean), inner.values),
            compared=inner.compared,
            label=np.where(met, groups.label, NOT_COMPARABLE),
            of=inner,
            part=self,
        )
        return Credit.of(table, trace)
