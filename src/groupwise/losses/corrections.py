"""Corrections: weights for the difference between the engine that sampled a token and the learner that trains on it.

Engine and learner compute log-probs of the same weights with different kernels and precisions. So the tokens come from
a slightly different policy than the ratio assumes. With d_t = logp_old_t - logp_behaviour_t, the importance weight of a
unit is w = exp(sum of d over its tokens). Weights multiply the surrogate, not the penalties, and have no gradient. A
token of weight 0 still counts in the totals: dropping tokens makes the update smaller. Weights are not renormalized to
mean 1 over the batch, because that would change with the split into micro-batches.

Axis: T tokens.
"""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import NonNegativeFloat, PositiveFloat

from groupwise.losses.token_columns import OLD_LOGP, Tensor, TokenColumns, Unit
from groupwise.parts.part import Part

LARGEST_LOG_WEIGHT = 20.0
"""Log-weights are clamped to this before exp, as in verl."""

CorrectionUnit = Literal["token", "step", "trajectory"]


class Truncate(Part, slot="correction"):
    """Cap the importance weight (TIS).

        w = min(exp(sum_unit d), high)

    Source: truncated importance sampling (Yao et al. 2025, "Your Efficient RL Framework Secretly Brings You Off-Policy
    RL Training"), as in verl (token or sequence) and TRL; verl's cap is 2, TRL's 3.
    """

    needs: ClassVar[frozenset[str]] = frozenset({OLD_LOGP})
    unit: CorrectionUnit = "token"
    """The unit whose tokens have one weight."""
    high: PositiveFloat = 2.0
    """Largest weight."""

    def __call__(self, columns: TokenColumns) -> Tensor:
        return _compute_weight(columns, self.unit).clamp(max=self.high)


class Mask(Part, slot="correction"):
    """Keep importance weights within bounds and drop the tokens outside (MIS).

        w = exp(sum_unit d) where low <= w <= high, else 0

    Source: masked importance sampling (Liu et al. 2025, "When Speed Kills Stability"), as in verl and TRL.
    """

    needs: ClassVar[frozenset[str]] = frozenset({OLD_LOGP})
    unit: CorrectionUnit = "token"
    """The unit whose tokens have one weight."""
    low: NonNegativeFloat = 0.5
    """Smallest weight that is kept."""
    high: NonNegativeFloat = 2.0
    """Largest weight that is kept."""

    def __call__(self, columns: TokenColumns) -> Tensor:
        weight_T = _compute_weight(columns, self.unit)
        return weight_T * _is_within(weight_T, self.low, self.high)


class Reject(Part, slot="correction"):
    """Drop whole units whose tokens differ too much on average; the others keep weight 1 (geometric rejection).

        w = 1 where low <= exp(mean_unit d) <= high, else 0

    Source: verl's rollout correction. Combine it with `Truncate` to drop the worst units and weigh the rest. Choice:
    the bounds are those of `Mask`. A mean over many tokens varies less than one token, so long sequences need tighter
    bounds.
    """

    needs: ClassVar[frozenset[str]] = frozenset({OLD_LOGP})
    unit: Literal["step", "trajectory"] = "step"
    """The unit that is kept or dropped as a whole."""
    low: NonNegativeFloat = 0.5
    """Smallest geometric mean that is kept."""
    high: NonNegativeFloat = 2.0
    """Largest geometric mean that is kept."""

    def __call__(self, columns: TokenColumns) -> Tensor:
        gap_T = columns.units(self.unit).mean(columns.require(OLD_LOGP) - columns.logp_behaviour)
        return _is_within(_exp_clamped(gap_T), self.low, self.high).to(gap_T)


class OffPolicyMask(Part, slot="correction"):
    """Drop units with a negative advantage that the policy has already moved far away from.

        w = 0 where A < 0 and mean_unit(logp_behaviour - logp) > max_drop, else 1

    Source: DeepSeek-V3.2 (2025), as in TRL; the threshold is not published, TRL suggests 0.5. Choice: A is the token's
    own advantage; a token credit part may give the tokens of a step different ones.
    """

    unit: Literal["step", "trajectory"] = "step"
    """The unit over which the drop in log-prob is averaged."""
    max_drop: NonNegativeFloat = 0.5
    """Largest mean drop in log-prob of a unit with a negative advantage."""

    def __call__(self, columns: TokenColumns) -> Tensor:
        drop_T = columns.units(self.unit).mean(columns.logp_behaviour - columns.logp.detach())
        return 1 - ((columns.advantage < 0) & (drop_T > self.max_drop)).to(drop_T)


def _compute_weight(columns: TokenColumns, unit: Unit) -> Tensor:
    return _exp_clamped(columns.units(unit).sum(columns.require(OLD_LOGP) - columns.logp_behaviour))


def _exp_clamped(log_weight_T: Tensor) -> Tensor:
    return log_weight_T.clamp(-LARGEST_LOG_WEIGHT, LARGEST_LOG_WEIGHT).exp()


def _is_within(weight_T: Tensor, low: float, high: float) -> Tensor:
    return (weight_T >= low) & (weight_T <= high)
