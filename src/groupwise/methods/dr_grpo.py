from __future__ import annotations

from groupwise.credit import ByTask, EpisodeReturn, NoScale, Relative
from groupwise.losses import Clip, ConstantLength, PolicyLoss
from groupwise.methods.method import Alone, Average, method
from groupwise.parts import Algorithm


@method
def dr_grpo(*, average: Average = "rollout", alone: Alone = "zero") -> Algorithm:
    """Dr. GRPO (Liu et al. 2025, arXiv:2503.20783): GRPO without the division by the standard deviation.

    A_i = R_i - mean(R);   loss = sum over tokens of clipped -A * rho / (answers * most tokens of an answer)

    Choices: groups as for GRPO. Clip 0.2, no KL. The divisor is TRL's, with the number of answers; verl leaves it out.
    """
    return Algorithm(
        advantage=Relative(by=ByTask(), of=EpisodeReturn(), scale=NoScale(), average=average, alone=alone),
        loss=PolicyLoss(surrogate=Clip(), aggregate=ConstantLength()),
    )
