"""Recipes that keep GRPO's credit and change what is minimised: DAPO, GSPO, CISPO, SAPO."""

from __future__ import annotations

from typing import Literal

from groupwise.core.algorithm import Algorithm
from groupwise.groups import ZeroSpread
from groupwise.losses import Cispo, Clip, PolicyLoss, Sapo, SequenceMean, SequenceRatio, TokenMean, TokenRatio
from groupwise.recipes.episode import grpo
from groupwise.recipes.recipe import Finite, recipe


@recipe
def dapo(*, low: Finite = 0.2, high: Finite = 0.28) -> Algorithm:
    """DAPO (Yu et al. 2025, arXiv:2503.14476): GRPO with more room upwards, every token equal, and no idle tasks.

    l = max(-A * rho, -A * clip(rho, 1 - low, 1 + high)),   loss = sum_t l_t / tokens

    Choices: a task whose attempts all did equally well is dropped, and its tokens leave the denominator. No KL. The
    paper's other two pieces belong elsewhere in a run file: sampling until the batch is full again is the attempt plan
    `top_up` in [rollout], the soft penalty for overlong answers the reward `overlong` in `rewards`.
    """
    return Algorithm(
        advantage=grpo().advantage,
        filters=(ZeroSpread(),),
        loss=PolicyLoss(ratio=TokenRatio(), surrogate=Clip(low=low, high=high), aggregate=TokenMean()),
    )


@recipe
def gspo(*, low: Finite = 3e-4, high: Finite = 4e-4, unit: Literal["step", "trajectory"] = "step") -> Algorithm:
    """GSPO (Zheng et al. 2025, arXiv:2507.18071): GRPO with one ratio for a whole answer, clipped as a whole.

    s = exp(mean_t(logp_t - logp_old_t)),   l = max(-A * s, -A * clip(s, 1 - low, 1 + high))

    Choices: the answer is that of a step; `unit="trajectory"` takes all steps of an attempt together. Each token
    carries its own gradient at the ratio of the answer. No KL. On answers of one token it is GRPO.
    """
    return Algorithm(
        advantage=grpo().advantage,
        loss=PolicyLoss(ratio=SequenceRatio(unit=unit), surrogate=Clip(low=low, high=high), aggregate=SequenceMean()),
    )


@recipe
def cispo(*, cap: Finite = 5.0) -> Algorithm:
    """CISPO (MiniMax-M1 2025, arXiv:2506.13585): GRPO with a cap on the importance weight instead of a clip.

    l = -sg(min(rho, cap)) * A * logp,   loss = sum_t l_t / tokens

    Choices: the cap is absolute, 5 as in the ScaleRL recipe (TRL reads it so; verl's is relative to 1). No lower
    bound. No KL.
    """
    return Algorithm(
        advantage=grpo().advantage,
        loss=PolicyLoss(ratio=TokenRatio(), surrogate=Cispo(cap=cap), aggregate=TokenMean()),
    )


@recipe
def sapo(*, tau_positive: Finite = 1.0, tau_negative: Finite = 1.05) -> Algorithm:
    """SAPO (2025, arXiv:2511.20347): GRPO with a soft gate, which lets go of a token gradually, instead of a clip.

    l = -A * (4 / tau) * sigmoid(tau * (rho - 1)),   tau = tau_positive where A > 0, else tau_negative

    Choices: the gate's slope weighs the gradient, as in TRL and verl. Each answer counts the same. No KL.
    """
    surrogate = Sapo(tau_positive=tau_positive, tau_negative=tau_negative)
    return Algorithm(
        advantage=grpo().advantage,
        loss=PolicyLoss(ratio=TokenRatio(), surrogate=surrogate, aggregate=SequenceMean()),
    )
