"""Baselines: subtract a group's level from the values of its members. Each returns the centred values, not the level.

Values are centred relative to the group's first member. So equal values give exactly 0, and a large common offset costs
no digits. Axis: N members.
"""

from __future__ import annotations

from typing import Annotated

import numpy as np
from pydantic import Field

from groupwise.data.segments import FloatArray, IntArray, Segments, pair_labels
from groupwise.parts.part import Finite, Part, Positive


class Mean(Part, slot="baseline"):
    """Subtract the group's mean."""

    def __call__(self, values: FloatArray, groups: Segments) -> FloatArray:
        return centre_values(values, groups)


class LeaveOneOut(Part, slot="baseline"):
    """Subtract the mean of the group's *other* members (RLOO): n / (n - 1) times the distance from the mean."""

    def __call__(self, values: FloatArray, groups: Segments) -> FloatArray:
        factor = groups.size / np.maximum(groups.size - 1, 1)
        return centre_values(values, groups) * groups.spread(factor, 1.0)


class Median(Part, slot="baseline"):
    """Subtract the group's median; of an even number of members, the lower of the middle two (MC-GRPO)."""

    def __call__(self, values: FloatArray, groups: Segments) -> FloatArray:
        return values - groups.spread(groups.lower_median(values))


class DistinctMean(Part, slot="baseline"):
    """Subtract the mean of the group's distinct values: a value that many members have counts once (MARS).

    Choice: values are distinct if they differ after rounding to `decimals`. A group with one distinct value gives 0.
    """

    decimals: Annotated[int, Field(ge=0, le=12)] = 6
    """Digits after the point that count."""

    def __call__(self, values: FloatArray, groups: Segments) -> FloatArray:
        kept, distinct = find_distinct_members(values, groups, self.decimals)
        mean = distinct.mean(np.round(values, self.decimals)[kept])
        return np.where(groups.spread(distinct.size, 1.0) == 1, 0.0, values - groups.spread(mean))


class ShiftedMean(Part, slot="baseline"):
    """Subtract less than the group's mean, so that positive advantages outweigh negative ones: v - (mean - shift).

    Source: AsymRE in "Group-relative REINFORCE is secretly an off-policy algorithm" (2025, arXiv:2509.24203) and its
    code in Trinity-RFT, shift 0.1. If all members are equal, solved or failed, each gets the shift. This pulls towards
    whatever was sampled, so keep the shift small. A shift of 0 is `Mean`.
    """

    shift: Finite = 0.1
    """Added to each member's distance from the mean; below 0, negative advantages outweigh positive ones."""

    def __call__(self, values: FloatArray, groups: Segments) -> FloatArray:
        return centre_values(values, groups) + np.where(groups.label < 0, 0.0, self.shift)


class LogMeanExp(Part, slot="baseline"):
    """Subtract the group's soft maximum, t * log(mean(exp(v / t))), which lies between the mean and the largest value.

    Source: OPMD's baseline (arXiv:2509.24203; Trinity-RFT, t = 1). Choice: it is computed relative to the group's
    largest value, so nothing overflows and equal values give exactly 0.
    """

    temperature: Positive = 1.0
    """t: towards 0 it is the largest value, for large t the mean."""

    def __call__(self, values: FloatArray, groups: Segments) -> FloatArray:
        below = np.where(groups.label < 0, 0.0, values - groups.spread(groups.high(values), np.nan))
        return below - groups.spread(self.temperature * np.log(groups.mean(np.exp(below / self.temperature))))


class NoBaseline(Part, slot="baseline"):
    """Subtract nothing."""

    def __call__(self, values: FloatArray, groups: Segments) -> FloatArray:
        return values


def centre_values(values: FloatArray, groups: Segments) -> FloatArray:
    """Distance of each member from its group's mean (N); 0 for members of no group."""
    distance = values - groups.spread(values[groups.first], np.nan)
    distance = np.where(groups.label < 0, 0.0, distance)
    return distance - groups.spread(groups.sum(distance) / groups.size)


def find_distinct_members(values: FloatArray, groups: Segments, decimals: int) -> tuple[IntArray, Segments]:
    """One member per distinct value of each group, and the groups of these members."""
    rounded = np.unique(np.round(values, decimals), return_inverse=True)[1].astype(np.int64)
    kept = Segments.of(pair_labels(groups.label, rounded)).first
    return kept, Segments.of(groups.label[kept])
