from __future__ import annotations

from typing import ClassVar

import numpy as np

from groupwise.credit import ByTask, EpisodeReturn, NoBaseline, NoScale, Relative, check_range
from groupwise.data.credit import Credit, WeightedSum
from groupwise.data.step_table import StepTable
from groupwise.losses import Clip, PolicyLoss, SequenceMean
from groupwise.methods.grpo import grpo
from groupwise.methods.method import method
from groupwise.parts import Algorithm, EstimatorPart, Finite, GrouperPart, NotNegative, Part, SignalPart


@method
def after_vgpo(*, k: Finite = 0.1) -> Algorithm:
    """After VGPO (ours; reviews of its ADAE tell the properties, not the equation): GRPO plus a fraction of the return.

    A_i = (R_i - mean(R)) / std(R) + k * R_i;   exactly k * R if all R are equal

    Choices: k is ours. Returns must not be negative. In the source, k counts only in the first sampling steps, which a
    language model does not have; its values of single steps are not here. The only rollout of a task gets k * R. Clip
    0.2, each answer counts the same, no KL. The plan `top_up` and filters that drop solved tasks are errors: the method
    is for these tasks. See `anchored`.
    """
    return Algorithm(
        advantage=Anchored(of=grpo().advantage, by=ByTask(), k=k),
        loss=PolicyLoss(surrogate=Clip(), aggregate=SequenceMean()),
    )


class Anchored(Part, slot="estimator"):
    """Add a fraction of the return, which must not be negative, to the advantage.

        A_i = z_i + k * Q_i,   which is ((1 + alpha) Q_i - mean(Q)) / std(Q) with alpha = k * std(Q)

    If all rollouts have the same return, z is 0 and A is exactly k * Q: solved tasks are still reinforced, and a return
    of 0 is not. The only member of a group gets k * Q too.

    Source: ours, after ADAE in VGPO, an estimator for images: alpha grows with the standard deviation, so the signal
    does not vanish with it. VGPO's other half, values of single steps, needs a value model for text and is not here.
    """

    needs_solved_groups: ClassVar[bool] = True
    of: EstimatorPart
    """The advantage z."""
    by: GrouperPart
    """The groups of the steps; a step without a group gets nothing added."""
    level: SignalPart = EpisodeReturn()
    """The return Q."""
    k: NotNegative = 0.1
    """The fraction of it that is added."""

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
