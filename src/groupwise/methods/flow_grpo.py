from __future__ import annotations

from groupwise.losses import Clip, Kl, PolicyLoss, TrajectoryMean
from groupwise.methods.grpo import grpo
from groupwise.methods.method import method
from groupwise.parts import Algorithm


@method
def flow_grpo(*, reference: bool = False) -> Algorithm:
    """Flow-GRPO (AgentFlow, Li et al. 2025, arXiv:2510.05592): every turn gets the final score, compared within the
    task.

    A_i = (R_i - mean(R)) / (std(R) + 1e-6) for all turns;   loss = mean over rollouts, then turns, then tokens

    Choices: the statistics count each rollout once, as the paper writes. The released code counts every turn, so longer
    rollouts weigh more (`reference=True`). Clip 0.2 below and 0.3 above, KL 0.001 as k3.
    """
    return Algorithm(
        advantage=grpo(average="step" if reference else "rollout").advantage,
        loss=PolicyLoss(
            surrogate=Clip(low=0.2, high=0.3),
            aggregate=TrajectoryMean(within="step"),
            penalties=(Kl(estimator="k3", weight=0.001),),
        ),
    )
