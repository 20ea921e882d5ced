"""Scales: the spread of a group's members, one number per group; advantages are divided by it.

Axes: N members, M groups.
"""

from __future__ import annotations

from typing import Annotated, Literal

import numpy as np
from pydantic import Field, NonNegativeFloat

from groupwise.credit.baselines import centre_values, find_distinct_members
from groupwise.data.segments import FloatArray, Segments
from groupwise.parts.part import Finite, NotNegative, Part, Positive

ROUNDING = 1e-9
"""Added if a source divides by a bare spread: returns that differ only in the last digit must get no advantage."""


class Deviation(Part, slot="scale"):
    """The standard deviation, plus eps.

        scale = factor * sqrt(sum_i (x_i - mean)^2 / (n - ddof)) + eps

    Choices: verl and TRL take ddof 1; HGPO's release takes ddof 0. eps is 1e-6 in verl and 1e-4 in TRL.
    """

    ddof: Literal[0, 1] = 1
    """1 = sample standard deviation (divide by n - 1), 0 = population standard deviation (divide by n)."""
    eps: NotNegative = 1e-6
    """Added to the standard deviation."""
    factor: Positive = 1.0
    """What the standard deviation is multiplied by; above 1 the advantages get smaller."""

    def __call__(self, values: FloatArray, groups: Segments) -> FloatArray:
        freedom = np.maximum(groups.size - self.ddof, 1)
        return self.factor * np.sqrt(groups.sum(centre_values(values, groups) ** 2) / freedom) + self.eps


class FlooredDeviation(Deviation, slot="scale"):
    """The standard deviation plus eps, or a floor if that is larger: a tiny spread gives tiny advantages.

        scale = max(deviation + eps, floor)

    Ours, for bonuses that are the only difference in a group (after DSDR).
    """

    floor: Positive = 0.05
    """The smallest divisor."""

    def __call__(self, values: FloatArray, groups: Segments) -> FloatArray:
        return np.maximum(super().__call__(values, groups), self.floor)


class MedianAbsoluteDeviation(Part, slot="scale"):
    """The median distance from the median, plus eps (MC-GRPO).

    Choice: if more than half of the members are equal, that median is 0 and the advantages would be huge. With 0/1
    rewards and an odd group this is always so. If a group's median distance is below `fallback` times its range, the
    sample standard deviation is used instead. 0 = the released behaviour.
    """

    eps: NotNegative = 1e-3
    """Added to the median distance."""
    fallback: NonNegativeFloat = 1e-3
    """Fraction of the range below which the sample standard deviation is used; 0 = never."""

    def __call__(self, values: FloatArray, groups: Segments) -> FloatArray:
        distance = np.abs(values - groups.spread(groups.lower_median(values)))
        median = groups.lower_median(distance)
        too_small = median < self.fallback * (groups.high(values) - groups.low(values))
        return np.where(too_small, Deviation(eps=ROUNDING)(values, groups), median + self.eps)


class MeanAbsoluteDeviation(Part, slot="scale"):
    """The mean distance from the mean: the absolute advantages of a group then sum to its size (DGPO).

    scale = (sum_i |x_i - mean| + eps) / n
    """

    eps: NotNegative = 0.0
    """Added to the *sum* of distances, as DGPO's release does with 1e-4."""

    def __call__(self, values: FloatArray, groups: Segments) -> FloatArray:
        return (groups.sum(np.abs(centre_values(values, groups))) + self.eps) / groups.size


class DistinctDeviation(Part, slot="scale"):
    """The sample standard deviation of the group's distinct values, plus eps (MARS)."""

    decimals: Annotated[int, Field(ge=0, le=12)] = 6
    """Digits after the point that count."""
    eps: NotNegative = 1e-6
    """Added to the standard deviation."""

    def __call__(self, values: FloatArray, groups: Segments) -> FloatArray:
        kept, distinct = find_distinct_members(values, groups, self.decimals)
        return Deviation(eps=self.eps)(np.round(values, self.decimals)[kept], distinct)


class NoScale(Part, slot="scale"):
    """Divide by 1."""

    def __call__(self, values: FloatArray, groups: Segments) -> FloatArray:
        return np.ones(len(groups))


# A scale for groups without success, in which only rewards by rank differ.


class FixedUnlessSolved(Deviation, slot="scale"):
    """The standard deviation plus eps, or a fixed number in groups without any success.

        scale = deviation + eps  where some x_i > above,  else fixed

    Ours, for rewards by rank (R^3): their size cancels in their own standard deviation, so a small difference between
    failed rollouts would move the policy as far as a solved group. With 0.5, the advantages of a ranked group go from
    -best to +best.
    """

    fixed: Positive = 0.5
    """The divisor of a group without success."""
    above: Finite = 0.5
    """The value above which a member is a success: the largest reward of a failed rollout."""

    def __call__(self, values: FloatArray, groups: Segments) -> FloatArray:
        return np.where(groups.high(values) > self.above, super().__call__(values, groups), self.fixed)
