"""The second derivation, held against the standard library."""

from __future__ import annotations

import math
import statistics

import pytest

from groupwise import Part
from groupwise.credit import (
    Deviation,
    DistinctDeviation,
    DistinctMean,
    FixedUnlessSolved,
    LeaveOneOut,
    Mean,
    MeanAbsoluteDeviation,
    Median,
    MedianAbsoluteDeviation,
    NoBaseline,
    NoScale,
)
from groupwise.report import explain as by_hand

GROUPS = [
    [1.0, 3.0, 8.0],
    [0.5, 0.25],
    [2.0, 2.0, 2.0, 7.0],
    [0.1, 0.2, 0.3, 0.4, 0.5],
    [-1e9, 1e9, 3.0],
]


@pytest.mark.parametrize("values", GROUPS)
def test_mean_and_deviations_are_those_of_the_statistics_module(values: list[float]) -> None:
    assert by_hand.mean(values) == pytest.approx(statistics.fmean(values), rel=1e-15)
    assert by_hand.deviation(values, 1) == pytest.approx(statistics.stdev(values), rel=1e-14)
    assert by_hand.deviation(values, 0) == pytest.approx(statistics.pstdev(values), rel=1e-14)


def test_a_discounted_sum_weighs_each_later_reward_once_more() -> None:
    # 8 + 4/2 + 2/4 + 1/8.
    assert by_hand.discount([8, 4, 2, 1], 0.5) == 10.625
    assert by_hand.discount([8, 4], 0.0) == 8
    assert by_hand.discount([8, 4], 1.0) == 12


@pytest.mark.parametrize("values", GROUPS)
def test_every_baseline_is_the_level_that_its_part_takes_off(values: list[float]) -> None:
    assert by_hand.derive_baseline(Mean(), values, 0) == pytest.approx(statistics.fmean(values), rel=1e-15)
    assert by_hand.derive_baseline(LeaveOneOut(), values, 1) == pytest.approx(
        statistics.fmean([values[0], *values[2:]]), rel=1e-15
    )
    assert by_hand.derive_baseline(Median(), values, 0) == statistics.median_low(values)
    assert by_hand.derive_baseline(DistinctMean(), values, 0) == pytest.approx(statistics.fmean(set(values)), rel=1e-12)
    assert by_hand.derive_baseline(NoBaseline(), values, 0) == 0


@pytest.mark.parametrize("values", GROUPS)
def test_every_scale_is_the_spread_that_its_part_divides_by(values: list[float]) -> None:
    middle = statistics.median_low(values)
    distance = statistics.median_low([abs(value - middle) for value in values])
    mean = statistics.fmean(values)
    expected: list[tuple[Part, float]] = [
        (Deviation(ddof=1, eps=0.5), statistics.stdev(values) + 0.5),
        (Deviation(ddof=0, eps=0.5), statistics.pstdev(values) + 0.5),
        (MedianAbsoluteDeviation(eps=0.5, fallback=0.0), distance + 0.5),
        (FixedUnlessSolved(ddof=0, eps=0.5, fixed=3.0, above=1e9), 3.0),
        (FixedUnlessSolved(ddof=0, eps=0.5, fixed=3.0, above=0.4), statistics.pstdev(values) + 0.5),
        (MeanAbsoluteDeviation(eps=0.5), (sum(abs(value - mean) for value in values) + 0.5) / len(values)),
        (DistinctDeviation(eps=0.5), statistics.stdev(set(values)) + 0.5),
        (NoScale(), 1.0),
    ]
    for part, spread in expected:
        assert by_hand.derive_scale(part, values) == pytest.approx(spread, rel=1e-12), part


def test_the_median_distance_falls_back_below_the_share_of_the_range_only() -> None:
    # Median distance 1 in a range of 4: a quarter of it.
    values = [0.0, 1.0, 2.0, 4.0]
    assert by_hand.derive_scale(MedianAbsoluteDeviation(eps=0.5, fallback=0.25), values) == 1.5
    assert by_hand.derive_scale(MedianAbsoluteDeviation(eps=0.5, fallback=0.26), values) == pytest.approx(
        math.sqrt(8.75 / 3) + 1e-9, rel=1e-15
    )


def test_distinct_values_go_by_the_parts_decimals() -> None:
    assert by_hand.derive_baseline(DistinctMean(decimals=0), [0.1, 0.2, 3.9], 0) == 2
    assert by_hand.derive_scale(DistinctDeviation(decimals=0, eps=0), [0.1, 0.2, 3.9]) == pytest.approx(math.sqrt(8))


def test_a_part_that_is_not_known_here_is_left_to_the_trace() -> None:
    class Other(Part, slot="scale"):
        """A scale from elsewhere."""

    assert by_hand.derive_baseline(Other(), [1.0], 0) is None
    assert by_hand.derive_scale(Other(), [1.0]) is None
