"""Baselines: take a group's own level out of its members' values. Each returns the centred values, not the level.

Centring is done relative to the group's first member, so that equal values give exactly 0 and a large common offset
costs no digits. Axis: N members.
"""

from __future__ import annotations

from typing import Annotated

import numpy as np
from pydantic import Field

from groupwise.core.parts.part import Part
from groupwise.core.segments import FloatArray, IntArray, Segments, pair_labels


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
    """Subtract the mean of the group's distinct values, so that a value held by many members counts once (MARS).

    Choice: values are distinct if they differ after rounding to `decimals`. A group with one distinct value gives 0.
    """

    decimals: Annotated[int, Field(ge=0, le=12)] = 6
    """Digits after the point that count."""

    def __call__(self, values: FloatArray, groups: Segments) -> FloatArray:
        kept, distinct = find_distinct_members(values, groups, self.decimals)
        mean = distinct.mean(np.round(values, self.decimals)[kept])
        return np.where(groups.spread(distinct.size, 1.0) == 1, 0.0, values - groups.spread(mean))


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
    """One member for each distinct value of each group, and those members' groups."""
    rounded = np.unique(np.round(values, decimals), return_inverse=True)[1].astype(np.int64)
    kept = Segments.of(pair_labels(groups.label, rounded)).first
    return kept, Segments.of(groups.label[kept])
