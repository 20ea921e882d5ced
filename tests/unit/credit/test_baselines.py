"""Baselines: what is left of a group's values once its level is taken out."""

from __future__ import annotations

import numpy as np
import pytest

from groupwise import ConfigError
from groupwise.credit import DistinctMean, LeaveOneOut, Mean, Median, NoBaseline
from groupwise.data.segments import Segments

# Group 0: 1, 3, 8. Group 1: 4, 6. Group 2: 7 alone. The 100 is in no group.
LABELS = Segments.of(np.array([0, 1, -1, 0, 2, 1, 0]))
VALUES = np.array([1.0, 4.0, 100.0, 3.0, 7.0, 6.0, 8.0])


def one_group(*values: float) -> tuple[np.ndarray, Segments]:
    return np.array(values), Segments.of(np.zeros(len(values), dtype=np.int64))


def test_the_mean_is_taken_off_each_group() -> None:
    # Means 4, 5 and 7.
    assert Mean()(VALUES, LABELS).tolist() == [-3, -1, 0, -1, 0, 1, 4]


def test_leave_one_out_takes_off_the_mean_of_the_others() -> None:
    # 1 - (3+8)/2 = -4.5; 3 - (1+8)/2 = -1.5; 8 - (1+3)/2 = 6. 4 - 6 = -2; 6 - 4 = 2. Alone: 0.
    assert LeaveOneOut()(VALUES, LABELS).tolist() == [-4.5, -2, 0, -1.5, 0, 2, 6]


def test_the_median_is_taken_off_the_lower_one_of_an_even_group() -> None:
    # Medians 3, 4 (of 4 and 6) and 7; a member of no group has no median to lose.
    assert Median()(VALUES, LABELS).tolist() == [-2, 0, 100, 0, 0, 2, 5]


def test_no_baseline_takes_nothing_off() -> None:
    assert NoBaseline()(VALUES, LABELS).tolist() == VALUES.tolist()


@pytest.mark.parametrize("baseline", [Mean(), LeaveOneOut(), Median(), DistinctMean()])
@pytest.mark.parametrize("constant", [0.1, 1 / 3, -1e100, 1e-12])
def test_equal_values_leave_exactly_0(baseline: Mean, constant: float) -> None:
    assert baseline(*one_group(*[constant] * 14)).tolist() == [0.0] * 14


def test_a_large_common_offset_costs_no_digits() -> None:
    assert Mean()(*one_group(1e15, 1e15 + 1, 1e15 + 5)).tolist() == [-2, -1, 3]


def test_a_value_held_by_many_counts_once_in_the_distinct_mean() -> None:
    # Distinct values 0 and 6, mean 3, although 0 is held three times.
    assert DistinctMean()(*one_group(0, 6, 0, 0)).tolist() == [-3, 3, -3, -3]


def test_distinct_values_are_counted_within_each_group() -> None:
    groups = Segments.of(np.array([0, 1, 0, 1, -1, 0]))
    # Group 0: {2, 4}, mean 3. Group 1: {2, 10}, mean 6. In no group: 0, as for the mean.
    assert DistinctMean()(np.array([2.0, 2, 4, 10, 6, 4]), groups).tolist() == [-1, -4, 1, 4, 0, 1]


def test_values_that_differ_beyond_the_decimals_are_one() -> None:
    # At one decimal: 0.1, 0.1 and 0.4, mean 0.25; the distance is from the value itself, not from its rounding.
    assert DistinctMean(decimals=1)(*one_group(0.125, 0.0625, 0.375)).tolist() == pytest.approx(
        [0.125 - 0.25, 0.0625 - 0.25, 0.375 - 0.25], rel=1e-12
    )


def test_six_decimals_are_the_default() -> None:
    # The first two are one value at six decimals, 0 and 1 are two: mean 0.5.
    assert DistinctMean()(*one_group(0.0, 4e-7, 1.0)).tolist() == [-0.5, 4e-7 - 0.5, 0.5]
    # At six decimals 0 and 6e-7 are two values: 0 and 1e-6, mean 5e-7.
    assert DistinctMean()(*one_group(0.0, 6e-7)).tolist() == pytest.approx([-5e-7, 1e-7], rel=1e-9)


def test_one_distinct_value_gives_exactly_0_even_where_the_last_digits_differ() -> None:
    assert DistinctMean()(*one_group(0.0, 4e-7)).tolist() == [0.0, 0.0]


@pytest.mark.parametrize(
    ("decimals", "message"), [(-1, "greater than or equal to 0, found -1"), (13, "less than or equal to 12, found 13")]
)
def test_decimals_run_from_0_to_12(decimals: int, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        DistinctMean(decimals=decimals)
    assert str(caught.value) == f"DistinctMean: decimals: expected a number {message}"
