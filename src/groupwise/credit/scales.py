"""Scales: how far apart a group's members lie, a number a group; credit is divided by it.

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
"""Added where a source divides by a bare spread: returns that differ in the last digit only must not get credit."""


class Deviation(Part, slot="scale"):
    """The standard deviation, plus eps.

        scale = factor * sqrt(sum_i (x_i - mean)^2 / (n - ddof)) + eps

    Choices: verl and TRL take ddof 1; HGPO's release takes ddof 0. eps is 1e-6 in verl and 1e-4 in TRL.
    """

    ddof: Literal[0, 1] = 1
    """1 = sample deviation (divide by n - 1), 0 = population deviation (divide by n)."""
    eps: NotNegative = 1e-6
    """Added to the deviation."""
    factor: Positive = 1.0
    """What the deviation is multiplied by; above 1 it makes smaller steps."""

    def __call__(self, values: FloatArray, groups: Segments) -> FloatArray:
        freedom = np.maximum(groups.size - self.ddof, 1)
        return self.factor * np.sqrt(groups.sum(centre_values(values, groups) ** 2) / freedom) + self.eps


class FlooredDeviation(Deviation, slot="scale"):
    """The standard deviation plus eps, or a floor where it is smaller: a tiny spread stays tiny.

        scale = max(deviation + eps, floor)

    Ours, for bonuses that make the only difference in a group (after DSDR).
    """

    floor: Positive = 0.05
    """The smallest divisor."""

    def __call__(self, values: FloatArray, groups: Segments) -> FloatArray:
        return np.maximum(super().__call__(values, groups), self.floor)


class MedianAbsoluteDeviation(Part, slot="scale"):
    """The median distance from the median, plus eps (MC-GRPO).

    Choice: where more than half of the members agree, that median is 0 and the credit would explode (with 0/1 rewards
    and an odd group it always does). With `fallback`, a group whose median distance is below `fallback` times its
    range is divided by its sample deviation instead. 0 = the released behaviour.
    """

    eps: NotNegative = 1e-3
    """Added to the median distance."""
    fallback: NonNegativeFloat = 1e-3
    """Share of the range below which the sample deviation takes over; 0 = never."""

    def __call__(self, values: FloatArray, groups: Segments) -> FloatArray:
        distance = np.abs(values - groups.spread(groups.lower_median(values)))
        median = groups.lower_median(distance)
        too_small = median < self.fallback * (groups.high(values) - groups.low(values))
        return np.where(too_small, Deviation(eps=ROUNDING)(values, groups), median + self.eps)


class MeanAbsoluteDeviation(Part, slot="scale"):
    """The mean distance from the mean: then the absolute credits of a group sum to its size (DGPO).

    scale = (sum_i |x_i - mean| + eps) / n
    """

    eps: NotNegative = 0.0
    """Added to the *sum* of distances, as DGPO's release does with 1e-4."""

    def __call__(self, values: FloatArray, groups: Segments) -> FloatArray:
        return (groups.sum(np.abs(centre_values(values, groups))) + self.eps) / groups.size


class DistinctDeviation(Part, slot="scale"):
    """The sample deviation of the group's distinct values, plus eps (MARS)."""

    decimals: Annotated[int, Field(ge=0, le=12)] = 6
    """Digits after the point that count."""
    eps: NotNegative = 1e-6
    """Added to the deviation."""

    def __call__(self, values: FloatArray, groups: Segments) -> FloatArray:
        kept, distinct = find_distinct_members(values, groups, self.decimals)
        return Deviation(eps=self.eps)(np.round(values, self.decimals)[kept], distinct)


class NoScale(Part, slot="scale"):
    """Divide by 1."""

    def __call__(self, values: FloatArray, groups: Segments) -> FloatArray:
        return np.ones(len(groups))


# A scale for groups without success, in which rewards by rank are all there is to compare.


class FixedUnlessSolved(Deviation, slot="scale"):
    """The standard deviation plus eps, or a fixed number in groups without any success.

        scale = deviation + eps  where some x_i > above,  else fixed

    Ours, for rewards by rank (R^3), whose size cancels in their own deviation: failed attempts told apart by little
    would move the policy as far as a solved group. Over 0.5, a whole group ranked has credit from -best to +best.
    """

    fixed: Positive = 0.5
    """What a group without success is divided by."""
    above: Finite = 0.5
    """The value above which a member is a success: what the best of the failed may be paid."""

    def __call__(self, values: FloatArray, groups: Segments) -> FloatArray:
        return np.where(groups.high(values) > self.above, super().__call__(values, groups), self.fixed)
