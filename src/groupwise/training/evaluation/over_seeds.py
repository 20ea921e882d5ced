"""Statistics of a few runs that differ in their seed: interquartile mean, its interval, probability of improvement.

The definitions are those of Agarwal et al. 2021, arXiv:2108.13264, and of their package rliable. Scores are a matrix
with a row for each run and a column for each stratum (a task set of tasks); every column is resampled by itself.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from groupwise.data.segments import FloatArray

RESAMPLES = 50_000
"""Number of bootstrap resamples, as in rliable."""
LEVEL = 0.95
"""Fraction of the resamples inside an interval."""
TRIMMED = 0.25
"""Fraction of the scores that the interquartile mean drops at each end."""
MAX_NUMBERS_AT_ONCE = 2_000_000
"""Numbers drawn at a time, to bound the memory."""

Statistic = Callable[[FloatArray], FloatArray]
"""From drawn scores of the shape (resamples, runs, strata) to a number for each resample."""


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """A number over runs, with its 95 % interval."""

    value: float
    """The estimate itself."""
    low: float
    """Lower end of the interval."""
    high: float
    """Upper end of the interval."""


def estimate_interquartile_mean(scores: FloatArray, *, resamples: int = RESAMPLES) -> Estimate:
    """Mean of the middle half of all scores, with its interval; `scores` has a row per run and a column per stratum.

        floor(n / 4) of the n scores are left out at either end

    It uses more scores than the median, and one bad run changes it less than the mean. With up to three scores it is
    the mean.

    >>> estimate_interquartile_mean(np.array([[0.1], [0.5], [0.6], [0.7], [1.0]])).value
    0.6
    """
    return _estimate(scores, interquartile_means, resamples)


def estimate_mean(scores: FloatArray, *, resamples: int = RESAMPLES) -> Estimate:
    """Mean of all scores, with its interval; `scores` has one row per run and one column per stratum."""
    return _estimate(scores, lambda drawn: drawn.mean(axis=(1, 2)), resamples)


def estimate_improvement(first: FloatArray, second: FloatArray, *, resamples: int = RESAMPLES) -> Estimate:
    """Probability that a run of the first variant is better than one of the second, with its interval.

        mean over strata of the fraction of pairs (x of the first, y of the second) with x > y; x = y counts a half

    0.5 means that neither is better. Both variants are resampled independently.

    >>> estimate_improvement(np.array([[0.5], [0.9]]), np.array([[0.5], [0.1]])).value
    0.875
    """
    ordered, other = _order(first), _order(second)
    generator = np.random.default_rng(0)
    values = [
        _improvements(_draw(ordered, num, generator), _draw(other, num, generator))
        for num in _split_resamples(ordered.size * len(other), resamples)
    ]
    return _bound(float(_improvements(ordered[None], other[None])[0]), np.concatenate(values))


def interquartile_means(drawn: FloatArray) -> FloatArray:
    """The interquartile mean of each resample; the shape is (resamples, runs, strata)."""
    flat = np.sort(drawn.reshape(len(drawn), -1), axis=1)
    cut = int(TRIMMED * flat.shape[1])
    means: FloatArray = flat[:, cut : flat.shape[1] - cut].mean(axis=1)
    return means


def _improvements(first: FloatArray, second: FloatArray) -> FloatArray:
    pairs = np.sign(first[:, :, None, :] - second[:, None, :, :])  # resamples, runs, other runs, strata
    shares: FloatArray = (pairs.mean(axis=(1, 2, 3)) + 1) / 2
    return shares


def _estimate(scores: FloatArray, statistic: Statistic, resamples: int) -> Estimate:
    ordered = _order(scores)
    generator = np.random.default_rng(0)
    values = [statistic(_draw(ordered, num, generator)) for num in _split_resamples(ordered.size, resamples)]
    return _bound(float(statistic(ordered[None])[0]), np.concatenate(values))


def _bound(value: float, drawn: FloatArray) -> Estimate:
    low, high = np.percentile(drawn, [50 * (1 - LEVEL), 50 * (1 + LEVEL)])
    return Estimate(value=value, low=float(low), high=float(high))


def _order(scores: FloatArray) -> FloatArray:
    """The scores of each stratum, sorted: the order of the runs must not matter."""
    assert scores.ndim == 2, "scores are a matrix with a row for each run"
    assert scores.size, "there is at least one run"
    return np.sort(np.asarray(scores, dtype=np.float64), axis=0)


def _draw(ordered: FloatArray, num: int, generator: np.random.Generator) -> FloatArray:
    """Draw as many runs again, with replacement, per stratum."""
    runs, strata = ordered.shape
    chosen = generator.integers(runs, size=(num, runs, strata))
    drawn: FloatArray = ordered[chosen, np.arange(strata)]
    return drawn


def _split_resamples(numbers_each: int, resamples: int) -> list[int]:
    """Numbers of resamples that are drawn at a time."""
    at_once = max(1, MAX_NUMBERS_AT_ONCE // numbers_each)
    whole, rest = divmod(resamples, at_once)
    return [at_once] * whole + [rest] * bool(rest)
