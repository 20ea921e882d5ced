from __future__ import annotations

from typing import ClassVar

from pydantic import PositiveFloat

from groupwise.losses import PolicyLoss, Tensor, TokenColumns, TokenLoss, TokenMean, TokenRatio
from groupwise.methods.grpo import grpo
from groupwise.methods.method import method
from groupwise.parts import Algorithm, Finite, Part


@method
def cispo(*, cap: Finite = 5.0) -> Algorithm:
    """CISPO (MiniMax-M1 2025, arXiv:2506.13585): GRPO with a cap on the importance weight instead of a clip.

    l = -sg(min(rho, cap)) * A * logp,   loss = sum_t l_t / tokens

    Choices: the cap is absolute, 5 as in the ScaleRL method (TRL reads it so; verl's is relative to 1). No lower
    bound. No KL.
    """
    return Algorithm(
        advantage=grpo().advantage, loss=PolicyLoss(ratio=TokenRatio(), surrogate=Cispo(cap=cap), aggregate=TokenMean())
    )


class Cispo(Part, slot="surrogate"):
    """Clip the importance weight, never the gradient: every token keeps a gradient.

        l = -sg(min(rho, cap)) * A * logp

    Source: CISPO (MiniMax-M1, 2025, arXiv:2506.13585), without an effective lower bound. verl's bound 1 + eps is `cap=1
    + eps`.
    """

    scales_with_credit: ClassVar[bool] = True
    is_trust_region: ClassVar[bool] = True
    cap: PositiveFloat = 5.0
    """Largest importance weight."""

    def __call__(self, ratio_T: Tensor, columns: TokenColumns) -> TokenLoss:
        weight_T = ratio_T.detach()
        loss_T = -weight_T.clamp(max=self.cap) * columns.advantage * columns.logp
        return TokenLoss(loss=loss_T, clipped={"high": weight_T > self.cap})
