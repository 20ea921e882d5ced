from __future__ import annotations

from typing import Literal

from groupwise.losses import Clip, PolicyLoss, SequenceMean, SequenceRatio
from groupwise.methods.grpo import grpo
from groupwise.methods.method import method
from groupwise.parts import Algorithm, Finite


@method
def gspo(*, low: Finite = 3e-4, high: Finite = 4e-4, unit: Literal["step", "trajectory"] = "step") -> Algorithm:
    """GSPO (Zheng et al. 2025, arXiv:2507.18071): GRPO with one ratio for a whole answer, clipped as a whole.

    s = exp(mean_t(logp_t - logp_old_t)),   l = max(-A * s, -A * clip(s, 1 - low, 1 + high))

    Choices: the answer is that of a step; `unit="trajectory"` takes all steps of a rollout together. Each token has its
    own gradient, at the ratio of the answer. No KL. On answers of one token it is GRPO.
    """
    return Algorithm(
        advantage=grpo().advantage,
        loss=PolicyLoss(ratio=SequenceRatio(unit=unit), surrogate=Clip(low=low, high=high), aggregate=SequenceMean()),
    )
