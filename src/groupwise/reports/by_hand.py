"""Statistics of one group, worked out by hand: plain Python, exact sums, no code shared with the estimators.

`explain` uses these to derive a number a second time from the members it shows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from statistics import median_low
from typing import Any

from groupwise.advantages import (
    Deviation,
    DistinctDeviation,
    DistinctMean,
    LeaveOneOut,
    Mean,
    MeanAbsoluteDeviation,
    Median,
    MedianAbsoluteDeviation,
    NoBaseline,
    NoScale,
)


def mean(values: Sequence[float]) -> float:
    """Mean with an exactly rounded sum."""
    return math.fsum(values) / len(values)


def deviation(values: Sequence[float], ddof: int) -> float:
    """Standard deviation about the mean."""
    level = mean(values)
    return math.sqrt(math.fsum((value - level) ** 2 for value in values) / (len(values) - ddof))


def discounted(rewards: Sequence[float], gamma: float) -> float:
    """Sum of gamma^k * r_k."""
    return math.fsum(gamma**k * reward for k, reward in enumerate(rewards))


def baseline(part: object, values: Sequence[float], own: int) -> float | None:
    """Level of a group as the member `own` sees it; None for a baseline that is not known here."""
    known: dict[type, Callable[[Any], float]] = {
        Mean: lambda _: mean(values),
        LeaveOneOut: lambda _: mean([value for i, value in enumerate(values) if i != own]),
        Median: lambda _: median_low(values),
        DistinctMean: lambda part: mean(sorted({round(value, part.decimals) for value in values})),
        NoBaseline: lambda _: 0.0,
    }
    return known[type(part)](part) if type(part) in known else None


def scale(part: object, values: Sequence[float]) -> float | None:
    """Spread of a group; None for a scale that is not known here."""
    known: dict[type, Callable[[Any], float]] = {
        Deviation: lambda part: deviation(values, part.ddof) + part.eps,
        MedianAbsoluteDeviation: lambda part: _median_distance(part, values),
        MeanAbsoluteDeviation: lambda part: (
            (math.fsum(abs(value - mean(values)) for value in values) + part.eps) / len(values)
        ),
        DistinctDeviation: lambda part: (
            deviation(sorted({round(value, part.decimals) for value in values}), 1) + part.eps
        ),
        NoScale: lambda _: 1.0,
    }
    return known[type(part)](part) if type(part) in known else None


def _median_distance(part: MedianAbsoluteDeviation, values: Sequence[float]) -> float:
    level = median_low(values)
    distance = median_low([abs(value - level) for value in values])
    if part.fallback is not None and distance < part.fallback * (max(values) - min(values)):
        return deviation(values, 1)
    return distance + part.eps
