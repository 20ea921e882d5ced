"""Scales: how far apart a group's members lie. Epsilons are large here, so that a lost one shows."""

from __future__ import annotations

import math

import numpy as np
import pytest

from groupwise import ConfigError
from groupwise.credit import (
    Deviation,
    DistinctDeviation,
    FixedUnlessSolved,
    MeanAbsoluteDeviation,
    MedianAbsoluteDeviation,
    NoScale,
)
from groupwise.data.segments import Segments


def find_scales(scale: Deviation, *groups: list[float]) -> list[float]:
    """The scale of each group; between them stand members of no group, which must not count."""
    values = [value for group in groups for value in (*group, 1e6)]
    labels = [label for number, group in enumerate(groups) for label in [*[number] * len(group), -1]]
    scales: list[float] = scale(np.array(values, dtype=np.float64), Segments.of(np.array(labels))).tolist()
    return scales


def test_the_sample_deviation_divides_by_one_less_and_adds_eps() -> None:
    # 1, 3, 5: squares 4 + 0 + 4 = 8, / 2 = 4, root 2. 0, 2: squares 2, / 1, root of 2.
    assert find_scales(Deviation(ddof=1, eps=0.5), [1, 3, 5], [0, 2]) == [2.5, math.sqrt(2) + 0.5]


def test_the_population_deviation_divides_by_the_number_of_members() -> None:
    # 0, 2: squares 2, / 2 = 1. 0, 0, 3, 5: mean 2, squares 4 + 4 + 1 + 9 = 18, / 4.
    assert find_scales(Deviation(ddof=0, eps=0.25), [0, 2], [0, 0, 3, 5]) == [1.25, math.sqrt(4.5) + 0.25]


def test_a_lone_member_has_no_deviation_and_keeps_eps() -> None:
    assert find_scales(Deviation(ddof=1, eps=0.5), [7]) == [0.5]
    assert find_scales(Deviation(ddof=0, eps=0.5), [7]) == [0.5]


def test_deviation_is_the_sample_deviation_with_one_millionth_by_default() -> None:
    assert find_scales(Deviation(), [1, 3, 5]) == [2 + 1e-6]


def test_groups_without_a_member_above_the_level_have_a_fixed_scale() -> None:
    # 0, 2: population deviation 1. A member at the level is none above it; the made-up million between is no member.
    scale = FixedUnlessSolved(ddof=0, eps=0.25, fixed=7.0, above=1.0)
    assert find_scales(scale, [0, 2], [0, 1], [0, 0], [1.0]) == [1.25, 7.0, 7.0, 7.0]
    assert find_scales(FixedUnlessSolved(), [0.5, 0.0], [1.5, -0.5]) == [0.5, math.sqrt(2) + 1e-6]


@pytest.mark.parametrize("scale", [Deviation, MedianAbsoluteDeviation, MeanAbsoluteDeviation, DistinctDeviation])
def test_eps_is_not_negative_and_may_be_0(scale: type[Deviation]) -> None:
    assert scale(eps=0).eps == 0
    with pytest.raises(ConfigError) as caught:
        scale(eps=-0.5)
    assert str(caught.value) == f"{scale.__name__}: eps: expected a number greater than or equal to 0, found -0.5"


def test_the_deviation_degree_is_0_or_1() -> None:
    with pytest.raises(ConfigError) as caught:
        Deviation(ddof=2)
    assert str(caught.value) == "Deviation: ddof: expected 0 or 1, found 2"


# 0, 1, 2, 4: lower median 1; distances 1, 0, 1, 3; their lower median 1; range 4.
FOUR = [0.0, 1.0, 2.0, 4.0]
# Mean 1.75: squares 3.0625 + 0.5625 + 0.0625 + 5.0625 = 8.75, over 3.
FOUR_DEVIATION = math.sqrt(8.75 / 3)


def test_the_median_distance_from_the_median_plus_eps() -> None:
    # The second group: median 10, distances 0, 5, 2, lower median 2.
    assert find_scales(MedianAbsoluteDeviation(eps=0.5, fallback=0.0), FOUR, [10, 5, 12]) == [1.5, 2.5]


def test_a_median_distance_of_0_leaves_eps_alone_as_released() -> None:
    assert find_scales(MedianAbsoluteDeviation(eps=0.5, fallback=0.0), [0, 0, 0, 1]) == [0.5]


def test_the_deviation_takes_over_only_below_the_share_of_the_range() -> None:
    # The median distance is a quarter of the range: not below 0.25 of it, below 0.26 of it.
    assert find_scales(MedianAbsoluteDeviation(eps=0.5, fallback=0.25), FOUR) == [1.5]
    assert find_scales(MedianAbsoluteDeviation(eps=0.5, fallback=0.26), FOUR) == [
        pytest.approx(FOUR_DEVIATION + 1e-9, rel=1e-15)
    ]


def test_each_group_falls_back_for_itself_and_the_deviation_holds_off_rounding() -> None:
    # 0, 0, 1: median distance 0; sample deviation sqrt((1/9 + 1/9 + 4/9) / 2) = sqrt(1/3).
    scales = find_scales(MedianAbsoluteDeviation(eps=0.5), [0, 0, 1], FOUR, [3, 3, 3])
    # In a group of equal values 0 is not below 0 times the range, so eps stays.
    assert scales == [pytest.approx(math.sqrt(1 / 3) + 1e-9, rel=1e-15), 1.5, 0.5]


def test_the_range_is_high_less_low() -> None:
    # -4, -1, 0, 1: median -1, distances 3, 0, 1, 2, lower median 1; range 5, a fifth of which is the distance.
    assert find_scales(MedianAbsoluteDeviation(eps=0.5, fallback=0.2), [-4, -1, 0, 1]) == [1.5]
    # Mean -1: squares 9 + 0 + 1 + 4 = 14, over 3.
    assert find_scales(MedianAbsoluteDeviation(eps=0.5, fallback=0.21), [-4, -1, 0, 1]) == [
        pytest.approx(math.sqrt(14 / 3) + 1e-9, rel=1e-15)
    ]


def test_one_thousandth_is_the_default_of_both_eps_and_share() -> None:
    # 0, 1, 1000: median 1, distances 1, 0, 999, median 1 = a thousandth of the range: not below it.
    assert find_scales(MedianAbsoluteDeviation(), [0, 1, 1000]) == [1.001]
    # A range of 1001: below it. Mean 334: squares 334^2 + 333^2 + 667^2, over 2.
    expected = math.sqrt((334**2 + 333**2 + 667**2) / 2)
    assert find_scales(MedianAbsoluteDeviation(), [0, 1, 1001]) == [pytest.approx(expected + 1e-9, rel=1e-15)]


def test_the_share_of_the_range_is_not_negative() -> None:
    assert find_scales(MedianAbsoluteDeviation(eps=0.5, fallback=0), [0, 0, 1]) == [0.5]
    with pytest.raises(ConfigError) as caught:
        MedianAbsoluteDeviation(fallback=-1)
    assert str(caught.value) == (
        "MedianAbsoluteDeviation: fallback: expected a number greater than or equal to 0, found -1"
    )


def test_the_mean_distance_from_the_mean_with_eps_in_the_sum() -> None:
    # 1, 3, 8: mean 4, distances 3 + 1 + 4 = 8; (8 + 1) / 3. 0, 2: 2; (2 + 1) / 2.
    assert find_scales(MeanAbsoluteDeviation(eps=1), [1, 3, 8], [0, 2]) == [3, 1.5]


def test_the_mean_distance_has_no_eps_by_default() -> None:
    assert find_scales(MeanAbsoluteDeviation(), [0, 2], [5, 5]) == [1, 0]


def test_the_deviation_of_distinct_values_counts_each_once() -> None:
    # {1, 3, 5}: 2. {0, 2}: root of 2. {7}: 0.
    assert find_scales(DistinctDeviation(eps=0.5), [1, 3, 3, 5, 5, 5], [0, 0, 2], [7, 7]) == [
        2.5,
        math.sqrt(2) + 0.5,
        0.5,
    ]


def test_distinct_values_are_rounded_before_their_deviation_is_taken() -> None:
    # At one decimal: 0.1, 0.1, 0.4; the deviation of 0.1 and 0.4 is 0.3 / sqrt(2).
    scales = find_scales(DistinctDeviation(decimals=1, eps=0), [0.125, 0.0625, 0.375])
    assert scales == [pytest.approx(0.3 / math.sqrt(2), rel=1e-12)]


def test_distinct_deviation_looks_at_six_decimals_and_adds_one_millionth_by_default() -> None:
    assert find_scales(DistinctDeviation(), [0, 4e-7, 2]) == [pytest.approx(math.sqrt(2) + 1e-6, rel=1e-15)]
    # 0 and 3e-6 are two values: their deviation is 3e-6 / sqrt(2).
    assert find_scales(DistinctDeviation(), [0, 3e-6]) == [pytest.approx(3e-6 / math.sqrt(2) + 1e-6, rel=1e-12)]


@pytest.mark.parametrize(
    ("decimals", "message"), [(-1, "greater than or equal to 0, found -1"), (13, "less than or equal to 12, found 13")]
)
def test_decimals_run_from_0_to_12(decimals: int, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        DistinctDeviation(decimals=decimals)
    assert str(caught.value) == f"DistinctDeviation: decimals: expected a number {message}"


def test_no_scale_divides_by_1() -> None:
    assert find_scales(NoScale(), [1, 3, 5], [7]) == [1, 1]
