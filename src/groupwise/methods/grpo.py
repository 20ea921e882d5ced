from __future__ import annotations

from typing import Literal

from groupwise.credit import ByTask, Deviation, EpisodeReturn, Relative
from groupwise.losses import Clip, Kl, PolicyLoss, SequenceMean
from groupwise.methods.method import Alone, Average, method
from groupwise.parts import Algorithm, Finite


@method
def grpo(
    *, ddof: Literal[0, 1] = 1, eps: Finite = 1e-6, average: Average = "rollout", alone: Alone = "zero"
) -> Algorithm:
    """GRPO (Shao et al. 2024, arXiv:2402.03300): a rollout is compared with the other rollouts of its task.

    A_i = (R_i - mean(R)) / (std(R) + eps);   loss = mean over answers, then tokens, of (clipped -A * rho + b * k3)

    Choices: sample standard deviation and eps 1e-6, as verl computes it (TRL: 1e-4). Each rollout counts once, whatever
    its number of steps; with `average="step"` it counts once per step. A task with one rollout gets 0; `alone="raw"`
    gives it R, as verl does. Clip 0.2, without verl's second bound 3 for a negative A (`surrogate.dual` of the loss). b
    = 0.001 (DeepSeek-R1); published settings go up to 0.04, and TRL's default is 0.
    """
    return Algorithm(
        advantage=Relative(
            by=ByTask(), of=EpisodeReturn(), scale=Deviation(ddof=ddof, eps=eps), average=average, alone=alone
        ),
        loss=PolicyLoss(surrogate=Clip(), aggregate=SequenceMean(), penalties=(Kl(estimator="k3", weight=0.001),)),
    )
