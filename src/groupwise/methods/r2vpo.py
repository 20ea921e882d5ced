from __future__ import annotations

import math
from typing import Annotated, ClassVar, Literal

from pydantic import Field, model_validator

from groupwise.credit import NumberState
from groupwise.losses import OLD_LOGP, Plain, PolicyLoss, Tensor, TokenColumns, TokenMean
from groupwise.methods.grpo import grpo
from groupwise.methods.method import method
from groupwise.parts import Algorithm, Finite, NotNegative, ObservedUpdate, Part, Positive
from groupwise.system.errors import ConfigError


@method
def r2vpo(
    *,
    first: Finite = 0.04,
    max_variance: Finite = 0.01,
    rate: Finite = 0.1,
    old: Literal["learner", "engine"] = "learner",
) -> Algorithm:
    """R2VPO (2026, arXiv:2601.03320; its dual step is ours): GRPO with a bound on the variance of ratios instead of a
    clip.

    l = -A * rho + m * (rho - 1)^2;   m <- clamp(m * exp(rate * (var / max_variance - 1)), 1e-4, 10), once an update

    Choices: m begins at 0.04, as in re-implementations; the bound, the rate and the rule of m are ours. Mean over
    tokens. m is kept from update to update, in checkpoints and in the journal; its column is `ratio_multiplier`. first
    = 0 is GRPO's advantage without any trust region. `old="engine"` takes ratios against the log-probs recorded at
    sampling, as the source does to reuse old samples; for rollouts of another policy this is always so.
    """
    penalty = RatioVariance(first=first, max_variance=max_variance, rate=rate)
    return Algorithm(
        advantage=grpo().advantage,
        loss=PolicyLoss(surrogate=Plain(), aggregate=TokenMean(), penalties=(penalty,), old=old),
    )


VARIANCE = "ratio_variance"
"""Reported metric: mean of (rho - 1)^2."""


class RatioVariance(Part, slot="penalty"):
    """Hold ratios near 1 by a square instead of a clip; the multiplier follows the variance of the ratios.

        l      = multiplier * (rho - 1)^2,   rho = exp(logp - logp_old)
        var    = mean of (rho - 1)^2 over the tokens of an update
        multiplier <- clamp( multiplier * exp(rate * (var / max_variance - 1)), lowest, highest ),   once an update

    Ratios have mean 1 under the policy that sampled, so the mean of the square is their variance.

    Source: R2VPO (2026, arXiv:2601.03320): the weight that follows a bound is the paper's. Choices: `rate = 0` holds
    the multiplier constant, and `first = 0` is no penalty at all. The variance is over all optimizer steps of an
    update, without tokens of other policies; an update in which nothing trained changes nothing. The multiplier changes
    once per update; the source's dual step is once per optimizer batch. With a single optimizer step per update all
    ratios are 1: the variance is 0, and the multiplier decays. Beyond e^20 a ratio has no gradient.
    """

    needs: ClassVar[frozenset[str]] = frozenset({OLD_LOGP})
    is_trust_region: ClassVar[bool] = True
    weight: NotNegative = 1.0
    """Factor of the multiplier; 0 = no penalty, and nothing is measured."""
    first: NotNegative = 0.04
    """The multiplier at the start of a run."""
    max_variance: Positive = 0.01
    """The variance above which the multiplier grows."""
    rate: NotNegative = 0.1
    """How fast the multiplier changes."""
    lowest: Positive = 1e-4
    """The smallest multiplier."""
    highest: Positive = 10.0
    """The largest multiplier."""
    column: Annotated[str, Field(min_length=1)] = "ratio_multiplier"
    """Column of the multiplier in the step table; two such parts that differ need two names."""

    @model_validator(mode="after")
    def _has_room(self) -> RatioVariance:
        if self.lowest > self.highest:
            raise ConfigError(
                f"lowest ({self.lowest:g}) is above highest ({self.highest:g}), so that no multiplier lies between; "
                "give a lower lowest"
            )
        return self

    @property
    def columns(self) -> frozenset[str]:
        return frozenset({self.column})

    def __call__(self, columns: TokenColumns) -> Tensor:
        return columns.column(self.column) * _square_distance(columns)

    def measure(self, columns: TokenColumns) -> dict[str, Tensor]:
        return {VARIANCE: _square_distance(columns).detach()}

    def start(self, *, seed: int) -> Multiplier:
        return Multiplier(self)


class Multiplier(NumberState):
    """The multiplier, which follows the variance of ratios."""

    def __init__(self, part: RatioVariance) -> None:
        super().__init__(part.column, part.first, key="multiplier")
        self._part = part

    def observe(self, update: ObservedUpdate) -> None:
        variance = update.metrics.get(f"loss/{VARIANCE}", math.nan)
        if not math.isfinite(variance) or not self._value:
            return
        part = self._part
        excess = min(part.rate * (variance / part.max_variance - 1), 100.0)
        self._value = min(max(self._value * math.exp(excess), part.lowest), part.highest)


def _square_distance(columns: TokenColumns) -> Tensor:
    return columns.log_ratio().expm1().square()
