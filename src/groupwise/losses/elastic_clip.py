"""A clip whose range gives way where the signal is strong. Axis: T tokens."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, ClassVar

from pydantic import Field

from groupwise.core.parts.part import Part
from groupwise.losses.slots import TokenLoss
from groupwise.losses.token_columns import TokenColumns

if TYPE_CHECKING:
    from torch import Tensor

Width = Annotated[float, Field(ge=0)]
Stretch = Annotated[float, Field(ge=0, lt=1)]

SPREAD = "spread"
"""The channel that says how mixed the outcomes of a token's group are, from 0 to 1."""


class ElasticClip(Part, slot="surrogate"):
    """The clipped surrogate with a range for each token: wider for large credit and mixed groups, else narrower.

        micro = 1 + by_credit * (2 min(|A|, full_credit) / full_credit - 1)
        macro = 1 + by_spread * (2 spread - 1),   spread from 0 (all equal) to 1 (half and half), by group
        E     = clamp(micro * macro, 0.5, 2);   l = max(-A * rho, -A * clip(rho, 1 - E low, 1 + E high))

    Source: ours, after ETR (2026, arXiv:2601.03723), of which only the idea was found: a range by the size of a
    token's credit and by how mixed its group is. The factors and their constants are our choice; E carries no gradient.
    `by_credit = by_spread = 0` is `Clip`. The spread is a channel of credit, `outcome_spread`.
    """

    scales_with_credit: ClassVar[bool] = True
    """Its loss is the credit times something: a token without credit has none."""
    is_trust_region: ClassVar[bool] = True
    """It bounds how far a ratio goes."""
    channels: ClassVar[frozenset[str]] = frozenset({SPREAD})

    low: Width = 0.2
    """How far below 1 a ratio may go, before it is stretched."""
    high: Width = 0.2
    """How far above 1 a ratio may go, before it is stretched."""
    by_credit: Stretch = 0.3
    """How much the size of a token's credit matters."""
    by_spread: Stretch = 0.3
    """How much it matters how mixed the group is."""
    full_credit: Annotated[float, Field(gt=0)] = 2.0
    """The credit from which on the range grows no more."""

    def __call__(self, ratio_T: Tensor, columns: TokenColumns) -> TokenLoss:
        A_T = columns.advantage
        micro_T = 1 + self.by_credit * (2 * A_T.abs().clamp(max=self.full_credit) / self.full_credit - 1)
        macro_T = 1 + self.by_spread * (2 * columns.channel(SPREAD) - 1)
        stretch_T = (micro_T * macro_T).clamp(0.5, 2.0)
        low_T, high_T = 1 - self.low * stretch_T, 1 + self.high * stretch_T
        loss_T = (-A_T * ratio_T).maximum(-A_T * ratio_T.clamp(low_T, high_T))
        ratio_T = ratio_T.detach()
        clipped = {"high": (A_T > 0) & (ratio_T > high_T), "low": (A_T < 0) & (ratio_T < low_T)}
        return TokenLoss(loss=loss_T, clipped=clipped)
