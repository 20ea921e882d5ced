"""Statistics of one group, worked out by hand: plain Python in exact fractions, no code shared with the estimators.

`explain` uses these to derive a number a second time from the members it shows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from statistics import median_low
from typing import Any, Protocol

from groupwise.advantages import (
    Blend,
    Deviation,
    DistinctDeviation,
    DistinctMean,
    ExponentiallyWeighted,
    FixedUnlessSolved,
    LeaveOneOut,
    LogMeanExp,
    Mean,
    MeanAbsoluteDeviation,
    Median,
    MedianAbsoluteDeviation,
    NoBaseline,
    NoScale,
    RootMeanSquare,
    ShiftedMean,
    Sum,
)


class WorkedTerm(Protocol):
    """A term of a mixture, worked out."""

    @property
    def value(self) -> float:
        """Its credit, as the estimator gave it."""

    @property
    def best_known(self) -> float:
        """Its credit, derived again; as the estimator gave it, if it was not derived."""

    @property
    def compared(self) -> bool:
        """Whether it compared the step with anybody."""


def mean(values: Sequence[float | Fraction]) -> Fraction:
    """The exact mean."""
    return sum((Fraction(value) for value in values), Fraction(0)) / len(values)


def mean_by_weight(values: Sequence[float | Fraction], weights: Sequence[float]) -> Fraction:
    """The exact mean with weights."""
    pairs = zip(values, weights, strict=True)
    return sum((Fraction(v) * Fraction(w) for v, w in pairs), Fraction(0)) / sum(map(Fraction, weights), Fraction(0))


def deviation(values: Sequence[float | Fraction], ddof: int) -> float:
    """Standard deviation about the mean; 0 for fewer values than it needs."""
    if len(values) <= ddof:
        return 0.0
    level = mean(values)
    return _take_root(sum(((Fraction(value) - level) ** 2 for value in values), Fraction(0)) / (len(values) - ddof))


def discount(rewards: Sequence[float | Fraction], gamma: float) -> Fraction:
    """Sum of gamma^k * r_k."""
    return sum((Fraction(gamma) ** k * Fraction(reward) for k, reward in enumerate(rewards)), Fraction(0))


def find_distinct(values: Sequence[float | Fraction], decimals: int) -> list[float]:
    """The values that differ after rounding, once each."""
    return sorted({round(float(value), decimals) for value in values})


def derive_baseline(part: object, values: Sequence[float | Fraction], own: int) -> Fraction | None:
    """Level of a group as the member `own` sees it; None for a baseline that is not known here."""
    known: dict[type, Callable[[Any], Fraction]] = {
        Mean: lambda _: mean(values),
        LeaveOneOut: lambda _: mean([value for i, value in enumerate(values) if i != own]),
        Median: lambda _: Fraction(median_low(values)),
        DistinctMean: lambda part: mean(find_distinct(values, part.decimals)),
        ShiftedMean: lambda part: mean(values) - Fraction(part.shift),
        LogMeanExp: lambda part: _find_soft_maximum(part.temperature, values),
        NoBaseline: lambda _: Fraction(0),
    }
    return known[type(part)](part) if type(part) in known else None


def derive_scale(part: object, values: Sequence[float | Fraction]) -> float | None:
    """Spread of a group; None for a scale that is not known here."""
    known: dict[type, Callable[[Any], float]] = {
        Deviation: lambda part: part.factor * deviation(values, part.ddof) + part.eps,
        FixedUnlessSolved: lambda part: (
            part.factor * deviation(values, part.ddof) + part.eps if max(values) > part.above else part.fixed
        ),
        MedianAbsoluteDeviation: lambda part: _find_median_distance(part, values),
        MeanAbsoluteDeviation: lambda part: float(
            (sum((abs(Fraction(v) - mean(values)) for v in values), Fraction(0)) + Fraction(part.eps)) / len(values)
        ),
        DistinctDeviation: lambda part: deviation(find_distinct(values, part.decimals), 1) + part.eps,
        RootMeanSquare: lambda part: _take_root(mean([Fraction(value) ** 2 for value in values])) + part.eps,
        NoScale: lambda _: 1.0,
    }
    return known[type(part)](part) if type(part) in known else None


def derive_weights(part: object, terms: Sequence[WorkedTerm]) -> list[float] | None:
    """What each term of a mixture is weighed by; None for a part that is not known here."""
    if isinstance(part, Sum):
        return [term.weight for term in part.terms]
    if isinstance(part, Blend):
        skips_zeros = part.absent == "zero_valued"
        raw = [
            term.weight if (worked.value != 0 if skips_zeros else worked.compared) else 0.0
            for term, worked in zip(part.terms, terms, strict=True)
        ]
        total = math.fsum(raw) + part.eps
        return [weight / total if total else 0.0 for weight in raw]
    if isinstance(part, ExponentiallyWeighted):
        return [math.exp(max(-20.0, min(20.0, terms[0].best_known / part.temperature)))]
    return None


def _find_soft_maximum(temperature: float, values: Sequence[float | Fraction]) -> Fraction:
    highest = max(Fraction(value) for value in values)
    total = math.fsum(math.exp(float(Fraction(value) - highest) / temperature) for value in values)
    return highest + Fraction(temperature * math.log(total / len(values)))


def _find_median_distance(part: MedianAbsoluteDeviation, values: Sequence[float | Fraction]) -> float:
    level = Fraction(median_low(values))
    distance = median_low([abs(Fraction(value) - level) for value in values])
    if distance < Fraction(part.fallback) * (Fraction(max(values)) - Fraction(min(values))):
        return deviation(values, 1) + 1e-9  # as the part does, against rounding
    return float(distance) + part.eps


def _take_root(value: Fraction) -> float:
    """Square root of a fraction of any size: scaled by a power of four, so that nothing over- or underflows."""
    if not value:
        return 0.0
    shift = (value.numerator.bit_length() - value.denominator.bit_length()) // 2
    return math.ldexp(math.sqrt(value / Fraction(4) ** shift), shift)
