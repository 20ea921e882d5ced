"""After VGPO (ours; reviews of its ADAE tell the properties, not the equation)."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from groupwise.credit import ByTask, EpisodeReturn, NoBaseline, NoScale, Relative, check_range
from groupwise.data.credit import Credit, WeightedSum
from groupwise.data.step_table import StepTable
from groupwise.losses import Clip, PolicyLoss, SequenceMean
from groupwise.methods.grpo import grpo
from groupwise.methods.method import recipe
from groupwise.parts.algorithm import Algorithm
from groupwise.parts.part import Finite, NotNegative, Part
from groupwise.parts.slots import EstimatorPart, GrouperPart, SignalPart


@recipe
def after_vgpo(*, k: Finite = 0.1) -> Algorithm:
    """After VGPO (ours; reviews of its ADAE tell the properties, not the equation): GRPO and a share of the return.

    A_i = (R_i - mean(R)) / std(R) + k * R_i;   where all attempts earned the same, exactly k * R

    Choices: k is ours. Returns must not be negative. The source lets k count in its first sampling steps alone, of
    which a language model has none; its values of single steps are not here. An attempt that is alone has k * R. Clip
    0.2, each answer counts the same, no KL. The plan `top_up` and filters that drop solved tasks are refused: these are
    the tasks that it is for. See `anchored`.
    """
    return Algorithm(
        advantage=Anchored(of=grpo().advantage, by=ByTask(), k=k),
        loss=PolicyLoss(surrogate=Clip(), aggregate=SequenceMean()),
    )


class Anchored(Part, slot="estimator"):
    """Add to credit a share of what was earned, which must not be negative.

        A_i = z_i + k * Q_i,   which is ((1 + alpha) Q_i - mean(Q)) / std(Q) with alpha = k * std(Q)

    Where all attempts earned the same, z is 0 and A is k * Q exactly: what is solved is still reinforced, and what is
    worth nothing is not. An attempt that is alone has k * Q too.

    Source: ours, after ADAE in VGPO, an estimator for images: alpha grows with the deviation, and the signal does not
    vanish with it. VGPO's other half, values of single steps, needs a model of values for text and is not here.
    """

    needs_solved_groups: ClassVar[bool] = True
    of: EstimatorPart
    """The credit z."""
    by: GrouperPart
    """The groups in which steps lie; a step in none gets nothing added."""
    level: SignalPart = EpisodeReturn()
    """What was earned, Q."""
    k: NotNegative = 0.1
    """The share of it that is added."""

    def __call__(self, table: StepTable) -> Credit:
        if self.k > 0:
            worse = "and a share of less than 0 would blame what is no worse than the others"
            check_range(
                table,
                table.ask_once(self.level),
                "what was earned is",
                f"{worse}; shift the rewards, or use grpo",
                low=0.0,
            )
        plain = Relative(by=self.by, of=self.level, baseline=NoBaseline(), scale=NoScale(), average="step", alone="raw")
        terms = (self.of(table).trace, plain(table).trace)
        trace = WeightedSum(
            values=terms[0].values + self.k * terms[1].values,
            compared=terms[0].compared,
            weights=(np.ones(len(table)), np.full(len(table), self.k)),
            terms=terms,
            part=self,
        )
        return Credit.of(table, trace)
