"""Surrogates: from ratios and advantages to one loss per token. Each is a trust region; a loss has exactly one.

Axis: T tokens. A is the advantage, rho the ratio, sg stops the gradient; losses are minimized.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, ClassVar

from pydantic import Field, NonNegativeFloat

from groupwise.losses.slots import TokenLoss
from groupwise.losses.token_columns import Tensor, TokenColumns
from groupwise.parts.part import Finite, Part


class Plain(Part, slot="surrogate"):
    """Importance weighting without a trust region.

        l = -A * rho

    Source: REINFORCE with importance weights. On-policy (rho = 1) its gradient is the policy gradient, -A grad logp.
    """

    scales_with_credit: ClassVar[bool] = True

    def __call__(self, ratio_T: Tensor, columns: TokenColumns) -> TokenLoss:
        return TokenLoss(loss=-columns.advantage * ratio_T)


class Clip(Part, slot="surrogate"):
    """The clipped surrogate: no gain from moving a ratio further than 1 - low or 1 + high.

        l = max(-A * rho, -A * clip(rho, 1 - low, 1 + high));   with `dual`, where A < 0: l = min(l, -A * dual)

    Source: PPO (Schulman et al. 2017, arXiv:1707.06347, eq. 7); low < high is DAPO's clip-higher; the dual clip is Ye
    et al. 2020 (arXiv:1912.09729), 3 in verl. INTELLECT-2's cap of rho at delta equals `dual=delta`. Infinite bounds
    give `Plain`. A = 0 gives 0. The bounds themselves are inside.
    """

    scales_with_credit: ClassVar[bool] = True
    is_trust_region: ClassVar[bool] = True
    low: NonNegativeFloat = 0.2
    """How far below 1 a ratio may go."""
    high: NonNegativeFloat = 0.2
    """How far above 1 a ratio may go."""
    dual: Annotated[float, Field(gt=1)] | None = None
    """Largest ratio with which a token of negative advantage counts; None = no bound."""

    def __call__(self, ratio_T: Tensor, columns: TokenColumns) -> TokenLoss:
        A_T = columns.advantage
        loss_T = (-A_T * ratio_T).maximum(-A_T * ratio_T.clamp(1 - self.low, 1 + self.high))
        ratio_T = ratio_T.detach()
        clipped = {"high": (A_T > 0) & (ratio_T > 1 + self.high), "low": (A_T < 0) & (ratio_T < 1 - self.low)}
        if self.dual is not None:
            loss_T = loss_T.where(A_T >= 0, loss_T.clamp(max=-A_T * self.dual))
            clipped["dual"] = (A_T < 0) & (ratio_T > self.dual)
        return TokenLoss(loss=loss_T, clipped=clipped)


class ClippedChannels(Clip, slot="surrogate"):
    """The clipped surrogate of the advantage plus those of further channels, each with a weight.

        l = clip(rho, A) + sum_k weight_k * clip(rho, A_k),   clip(rho, A) = max(-A * rho, -A * clip(rho, ...))

    It is not the surrogate of the summed advantage: if A and A_k have opposite signs, a ratio may be clipped for one
    and not for the other. If no ratio leaves the bounds, both are equal.

    Source: HDPO (2026, arXiv:2604.08545), which sums losses of accuracy and of tool economy. Choices: channels are
    those of `algorithm.channels`; one of weight 0 is not read. The reported fractions of clipped tokens are those of
    the advantage itself. Without weights it is `Clip`.
    """

    scales_with_credit: ClassVar[bool] = True
    weights: Mapping[str, Finite] = {}
    """The weight of each further channel, by its name."""

    @property
    def channels(self) -> frozenset[str]:
        return frozenset(name for name, weight in self.weights.items() if weight)

    def __call__(self, ratio_T: Tensor, columns: TokenColumns) -> TokenLoss:
        outcome = super().__call__(ratio_T, columns)
        loss_T = outcome.loss
        for name in sorted(self.channels):
            of_channel = replace(columns, advantage=columns.channel(name))
            loss_T = loss_T + self.weights[name] * super().__call__(ratio_T, of_channel).loss
        return TokenLoss(loss=loss_T, clipped=outcome.clipped)
