"""Credit that keeps a signal where all attempts did equally well: the level itself counts a little. Axis: S steps."""

from __future__ import annotations

from typing import Annotated, ClassVar

import numpy as np
from pydantic import Field

from groupwise.advantages.baselines import NoBaseline
from groupwise.advantages.relative import Relative
from groupwise.advantages.scales import NoScale
from groupwise.advantages.signals import EpisodeReturn
from groupwise.core.credit import Credit, Mixture
from groupwise.core.errors import RecordError
from groupwise.core.parts.part import Part
from groupwise.core.parts.slots import EstimatorPart, GrouperPart, SignalPart
from groupwise.core.step_table import StepTable

ROUNDING = 1e-9
"""Rewards that add up to nothing may miss it by this much."""


class Anchored(Part, slot="estimator"):
    """Add to credit a share of what was earned, which must not be negative.

        A_i = z_i + k * Q_i,   which is ((1 + alpha) Q_i - mean(Q)) / std(Q) with alpha = k * std(Q)

    Where all attempts earned the same, z is 0 and A is k * Q exactly: what is solved is still reinforced, and what is
    worth nothing is not. An attempt that is alone has k * Q too.

    Source: ours, after ADAE in VGPO, an estimator for images of which reviews tell the properties and nobody the
    equation: alpha grows with the deviation, and the signal does not vanish with it. k is ours. VGPO's other half,
    values of single steps, needs a model of values for text and is not here.
    """

    needs_solved_groups: ClassVar[bool] = True
    """Groups that all did equally well are what it is for."""
    of: EstimatorPart
    """The credit z."""
    by: GrouperPart
    """The groups in which steps lie; a step in none gets nothing added."""
    level: SignalPart = EpisodeReturn()
    """What was earned, Q."""
    k: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.1
    """The share of it that is added."""

    def __call__(self, table: StepTable) -> Credit:
        level = table.ask_once(self.level)
        below = np.flatnonzero((level < -ROUNDING) & (self.k > 0))
        if len(below):
            raise RecordError(
                f"{table.describe_step(int(below[0]))}: what was earned is {level[below[0]]:g}, and a share of less "
                "than 0 would blame what is no worse than the others; shift the rewards, or use grpo"
            )
        plain = Relative(by=self.by, of=self.level, baseline=NoBaseline(), scale=NoScale(), average="step", alone="raw")
        terms = (self.of(table).trace, plain(table).trace)
        trace = Mixture(
            values=terms[0].values + self.k * terms[1].values,
            compared=terms[0].compared,
            weights=(np.ones(len(table)), np.full(len(table), self.k)),
            terms=terms,
            part=self,
        )
        return Credit.of(table, trace)
