"""Ratios: how much more likely a token has become since the start of the update. Axis: T tokens."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import PositiveFloat

from groupwise.losses.token_columns import OLD_LOGP, SPANS, Tensor, TokenColumns
from groupwise.parts.part import Part


class TokenRatio(Part, slot="ratio"):
    """The ratio of each token alone.

        rho_t = exp(logp_t - logp_old_t)

    Source: PPO (Schulman et al. 2017, arXiv:1707.06347, eq. 6). Choice: the log-ratio is clamped to +-`clamp` before
    exp, as in verl; beyond it the token has no gradient.
    """

    needs: ClassVar[frozenset[str]] = frozenset({OLD_LOGP})
    clamp: PositiveFloat = 20.0
    """Largest log-ratio, in absolute value."""

    def __call__(self, columns: TokenColumns) -> Tensor:
        return columns.log_ratio(self.clamp).exp()


class SequenceRatio(Part, slot="ratio"):
    """One ratio for all tokens of a unit: the geometric mean of their ratios, or their product.

        log s = mean_t(logp_t - logp_old_t)                    `length="mean"`, GSPO
        log s = sum_t(logp_t - logp_old_t)                     `length="sum"`, RLOO
        log s_t = sg(log s) + c * (logp_t - sg(logp_t)),       c = 1 for the mean, L for the sum

    The last line is what each token gets: its value is s, and averaged over the unit its gradient is that of s.

    Source: GSPO (Zheng et al. 2025, arXiv:2507.18071); the product is TRL's RLOO. Choices: the papers' sequence is one
    answer to one prompt, so the default is `unit="step"`. Released codes with a whole rollout per row take the ratio of
    the trajectory: `unit="trajectory"`. verl clamps log s at 10 from above; we clamp on both sides. On units of one
    token, it is `TokenRatio`. Micro-batches hold whole units. `unit="span"` takes the spans of a response that the
    token credit marks (Rank-GRPO: the items of a list).
    """

    unit: Literal["span", "step", "trajectory"] = "step"
    """The unit whose tokens have one ratio, for any split into samples."""
    length: Literal["mean", "sum"] = "mean"
    """Whether the log-ratio is averaged over the unit's tokens or summed."""
    clamp: PositiveFloat = 10.0
    """Largest log-ratio of a unit, in absolute value."""

    @property
    def needs(self) -> frozenset[str]:
        return frozenset({OLD_LOGP, SPANS} if self.unit == "span" else {OLD_LOGP})

    def __call__(self, columns: TokenColumns) -> Tensor:
        logp_T = columns.logp
        units = columns.units(self.unit)
        change_T = logp_T.detach() - columns.require(OLD_LOGP)
        moving_T = logp_T - logp_T.detach()
        if self.length == "mean":
            log_ratio_T = units.mean(change_T) + moving_T
        else:
            log_ratio_T = units.sum(change_T) + units.size(change_T) * moving_T
        return log_ratio_T.clamp(-self.clamp, self.clamp).exp()
