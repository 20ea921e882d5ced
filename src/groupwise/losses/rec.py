"""REINFORCE that leaves tokens out by their ratio: the surrogates of the REC family, whose ratios carry no gradient.

Axis: T tokens. A is the advantage, rho the ratio, sg stops the gradient; losses are minimised.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from pydantic import Field, model_validator

from groupwise.core.errors import ConfigError
from groupwise.core.parts.part import Part
from groupwise.losses.slots import TokenLoss
from groupwise.losses.token_columns import TokenColumns

if TYPE_CHECKING:
    from torch import Tensor

Width = Annotated[float, Field(ge=0)]


class Reinforce(Part, slot="surrogate"):
    """The policy gradient as it is, whoever sampled the token: no ratio, no trust region.

        l = -A * logp

    Source: REINFORCE (Williams 1992), the loss that "Group-relative REINFORCE is secretly an off-policy algorithm"
    (2025, arXiv:2509.24203) starts from. The ratio of the loss is measured and not used.
    """

    scales_with_credit: ClassVar[bool] = True
    """Its loss is the credit times something: a token without credit has none."""

    def __call__(self, ratio_T: Tensor, columns: TokenColumns) -> TokenLoss:
        return TokenLoss(loss=-columns.advantage * columns.logp)


class Rec(Part, slot="surrogate"):
    """REINFORCE on the tokens whose ratio lies in a region; the others are left out.

        l = -A * logp * keep * (sg(rho) if weighted else 1)

        one_side   keep where A >= 0 and rho <= 1 + high, or A <= 0 and rho >= 1 - low
        two_side   keep where 1 - low <= rho <= 1 + high
        ring       keep where 1 - low <= rho <= 1 + high, or A >= 0 and rho <= 1 - far_low, or A <= 0 and
                   rho >= 1 + far_high

    Source: REC (2025, arXiv:2509.24203) and its code in Trinity-RFT. `one_side` and `weighted` has the gradient of
    `Clip`, token by token; so the source finds that what keeps off-policy training stable is what is left out, not the
    weight. Choices: the bounds themselves are kept. What is left out stays in every denominator.
    """

    scales_with_credit: ClassVar[bool] = True
    """Its loss is the credit times something: a token without credit has none."""
    is_trust_region: ClassVar[bool] = True
    """It bounds how far a ratio goes."""

    region: Literal["one_side", "two_side", "ring"] = "one_side"
    """Which tokens are kept."""
    weighted: bool = True
    """Whether a token is weighed by its ratio (the source's IS)."""
    low: Width = 0.2
    """How far below 1 a ratio may go."""
    high: Width = 0.2
    """How far above 1 a ratio may go."""
    far_low: Width = 0.6
    """`ring`: from how far below 1 on a praised token is kept again."""
    far_high: Width = 2.0
    """`ring`: from how far above 1 on a blamed token is kept again."""

    @model_validator(mode="after")
    def _has_a_gap(self) -> Rec:
        if self.region == "ring" and (self.far_low < self.low or self.far_high < self.high):
            raise ConfigError(
                f"the ring begins within the region (low {self.low:g}, far_low {self.far_low:g}, high {self.high:g}, "
                f"far_high {self.far_high:g}); give far_low and far_high that are at least low and high"
            )
        return self

    def __call__(self, ratio_T: Tensor, columns: TokenColumns) -> TokenLoss:
        A_T, rho_T = columns.advantage, ratio_T.detach()
        below_T, above_T = rho_T < 1 - self.low, rho_T > 1 + self.high
        if self.region == "one_side":
            below_T, above_T = below_T & (A_T < 0), above_T & (A_T > 0)
        elif self.region == "ring":
            below_T = below_T & ~((A_T >= 0) & (rho_T <= 1 - self.far_low))
            above_T = above_T & ~((A_T <= 0) & (rho_T >= 1 + self.far_high))
        kept_T = (~(below_T | above_T)).to(rho_T)
        loss_T = -A_T * columns.logp * (kept_T * rho_T if self.weighted else kept_T)
        return TokenLoss(loss=loss_T, clipped={"high": above_T, "low": below_T})
