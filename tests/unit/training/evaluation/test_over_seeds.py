"""Statistics over seeds equal those of the package rliable.

The numbers were made with rliable 1.2.0 (with arch 7.2.0, pandas 2 and scipy 1.17.1), `library.get_interval_estimates`
with its defaults: 50,000 resamples (20,000 for the improvement), percentiles. Its draws are others than ours, and it
takes no seed for them, so that ends of intervals agree to what 50,000 draws leave open.
"""

from __future__ import annotations

import numpy as np
import pytest

from groupwise.training.evaluation import over_seeds
from groupwise.training.evaluation.over_seeds import estimate_improvement, estimate_interquartile_mean, estimate_mean

FIVE = [[0.1], [0.5], [0.6], [0.7], [1.0]]
FOUR_BY_TWO = [[0.2, 0.9], [0.4, 0.8], [0.35, 0.1], [0.6, 0.65]]
EIGHT_BY_THREE = [
    [0.51, 0.95, 0.14],
    [0.95, 0.31, 0.42],
    [0.83, 0.41, 0.55],
    [0.03, 0.75, 0.54],
    [0.33, 0.79, 0.3],
    [0.45, 0.13, 0.4],
    [0.2, 0.26, 0.75],
    [0.28, 0.49, 0.98],
]
SIX_BY_THREE = [
    [0.21, 0.24, 0.65],
    [0.07, 0.48, 0.58],
    [0.15, 0.04, 0.22],
    [0.53, 0.45, 0.12],
    [0.35, 0.54, 0.34],
    [0.51, 0.77, 0.55],
]


@pytest.mark.parametrize(
    ("scores", "value", "low", "high"),
    [
        (FIVE, 0.6, 0.23333333, 0.9),
        (FOUR_BY_TWO, 0.5, 0.25, 0.675),
        (EIGHT_BY_THREE, 0.455, 0.34333333, 0.61),
    ],
)
def test_the_interquartile_mean_is_that_of_rliable(
    scores: list[list[float]], value: float, low: float, high: float
) -> None:
    estimate = estimate_interquartile_mean(np.array(scores))
    assert estimate.value == pytest.approx(value, abs=1e-12)
    assert (estimate.low, estimate.high) == pytest.approx((low, high), abs=0.006)


@pytest.mark.parametrize(
    ("scores", "value", "low", "high"),
    [(FIVE, 0.58, 0.32, 0.82), (FOUR_BY_TWO, 0.5, 0.31875, 0.65), (EIGHT_BY_THREE, 0.48958333, 0.385, 0.60041667)],
)
def test_the_mean_is_that_of_rliable(scores: list[list[float]], value: float, low: float, high: float) -> None:
    estimate = estimate_mean(np.array(scores))
    assert estimate.value == pytest.approx(value, abs=1e-8)
    assert (estimate.low, estimate.high) == pytest.approx((low, high), abs=0.006)


def test_the_probability_of_improvement_is_that_of_rliable() -> None:
    estimate = estimate_improvement(np.array(EIGHT_BY_THREE), np.array(SIX_BY_THREE))
    assert estimate.value == pytest.approx(0.58333333, abs=1e-8)
    assert (estimate.low, estimate.high) == pytest.approx((0.39583333, 0.75694444), abs=0.006)


def test_how_many_are_drawn_at_a_time_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = estimate_interquartile_mean(np.array(FIVE), resamples=20_001)
    monkeypatch.setattr(over_seeds, "MAX_NUMBERS_AT_ONCE", 5 * 1000)
    assert estimate_interquartile_mean(np.array(FIVE), resamples=20_001) == whole


def test_one_run_is_its_own_interval() -> None:
    estimate = estimate_interquartile_mean(np.array([[0.4]]))
    assert (estimate.value, estimate.low, estimate.high) == (0.4, 0.4, 0.4)
