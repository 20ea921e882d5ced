from __future__ import annotations

from groupwise.credit import ZeroSpread
from groupwise.losses import Clip, PolicyLoss, TokenMean, TokenRatio
from groupwise.methods.grpo import grpo
from groupwise.methods.method import method
from groupwise.parts import Algorithm, Finite


@method
def dapo(*, low: Finite = 0.2, high: Finite = 0.28) -> Algorithm:
    """DAPO (Yu et al. 2025, arXiv:2503.14476): GRPO with a higher upper clip, equal tokens, and no zero-variance
    groups.

    l = max(-A * rho, -A * clip(rho, 1 - low, 1 + high)),   loss = sum_t l_t / tokens

    Choices: a task whose rollouts all did equally well is dropped, and its tokens leave the denominator. No KL. The
    paper's other two pieces are set elsewhere in a run file. Sampling until the batch is full is the plan `top_up` in
    [rollout]. The soft penalty for overlong answers is the reward `overlong` in `rewards`.
    """
    return Algorithm(
        advantage=grpo().advantage,
        filters=(ZeroSpread(),),
        loss=PolicyLoss(ratio=TokenRatio(), surrogate=Clip(low=low, high=high), aggregate=TokenMean()),
    )
