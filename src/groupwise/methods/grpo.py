"""GRPO (Shao et al. 2024, arXiv:2402.03300)."""

from __future__ import annotations

from typing import Literal

from groupwise.credit import ByTask, Deviation, EpisodeReturn, Relative
from groupwise.losses import Clip, Kl, PolicyLoss, SequenceMean
from groupwise.methods.method import Alone, Average, recipe
from groupwise.parts.algorithm import Algorithm
from groupwise.parts.part import Finite


@recipe
def grpo(
    *, ddof: Literal[0, 1] = 1, eps: Finite = 1e-6, average: Average = "attempt", alone: Alone = "zero"
) -> Algorithm:
    """GRPO (Shao et al. 2024, arXiv:2402.03300): an attempt is compared with the other attempts at its task.

    A_i = (R_i - mean(R)) / (std(R) + eps);   loss = mean over answers, then tokens, of (clipped -A * rho + b * k3)

    Choices: sample deviation and eps 1e-6, as verl computes it (TRL: 1e-4). Each attempt counts once, however many
    steps it has; `average="step"` counts it once a step. A task with one attempt gets 0; `alone="raw"` gives it R, as
    verl does. Clip 0.2, without the second bound 3 that verl puts on a negative A (`surrogate.dual` of the loss);
    b = 0.001 (DeepSeek-R1), where published recipes range to 0.04 and TRL's default is 0.
    """
    return Algorithm(
        advantage=Relative(
            by=ByTask(), of=EpisodeReturn(), scale=Deviation(ddof=ddof, eps=eps), average=average, alone=alone
        ),
        loss=PolicyLoss(surrogate=Clip(), aggregate=SequenceMean(), penalties=(Kl(estimator="k3", weight=0.001),)),
    )
