"""Segment arithmetic on labels that can be worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest

from groupwise.data.segments import Segments, count_weighted, order_by_key, pair_labels

HUGE = 2**62


def ints(*values: int) -> np.ndarray:
    return np.array(values, dtype=np.int64)


def floats(*values: float) -> np.ndarray:
    return np.array(values, dtype=np.float64)


def test_labels_become_dense_in_ascending_order_and_minus_one_stays() -> None:
    groups = Segments.of(ints(4, -1, 4, 7, 0))
    assert groups.label.tolist() == [1, -1, 1, 2, 0]
    assert groups.size.tolist() == [1, 2, 1]
    assert groups.first.tolist() == [4, 0, 3]
    assert len(groups) == 3


def test_the_first_member_of_a_group_is_the_first_in_member_order_not_the_last() -> None:
    assert Segments.of(ints(1, 0, 1, 0, 1)).first.tolist() == [1, 0]


@pytest.mark.parametrize("largest", [HUGE, 2**63 - 1, 16, 15])
def test_sparse_labels_are_sorted_into_the_same_groups_as_dense_ones(largest: int) -> None:
    # Four members: a label of 16 = 4 x 4 takes the sorting path, 15 still counts.
    groups = Segments.of(ints(largest, 3, -1, largest))
    assert groups.label.tolist() == [1, 0, -1, 1]
    assert groups.size.tolist() == [1, 2]
    assert groups.first.tolist() == [1, 0]


def test_labels_without_any_group_give_no_groups() -> None:
    groups = Segments.of(ints(-1, -1))
    assert len(groups) == 0
    assert groups.label.tolist() == [-1, -1]
    assert groups.sum(floats(1, 2)).tolist() == []
    assert groups.mean(floats(1, 2)).tolist() == []
    assert groups.lower_median(floats(1, 2)).tolist() == []
    assert groups.spread(floats(), -7.0).tolist() == [-7.0, -7.0]


def test_no_members_give_no_groups() -> None:
    groups = Segments.of(ints())
    assert len(groups) == 0
    assert groups.label.tolist() == []
    assert groups.first.tolist() == []
    assert groups.low(floats()).tolist() == []
    assert groups.is_constant(floats()).tolist() == []


def test_spread_hands_members_their_groups_number_and_others_the_outside_value() -> None:
    groups = Segments.of(ints(5, -1, 2, 5))
    assert groups.spread(floats(10, 20), -1.5).tolist() == [20, -1.5, 10, 20]


def test_sum_and_mean_leave_out_members_of_no_group() -> None:
    # Group 0: 1 + 5 = 6, mean 3. Group 1: 2 + 4 + 9 = 15, mean 5. The 100 belongs to none.
    groups = Segments.of(ints(0, 1, -1, 1, 0, 1))
    values = floats(1, 2, 100, 4, 5, 9)
    assert groups.sum(values).tolist() == [6, 15]
    assert groups.mean(values).tolist() == [3, 5]


@pytest.mark.parametrize("constant", [0.1, 1 / 3, -1e100, 1e-300, 123.456])
@pytest.mark.parametrize("num", [2, 3, 7, 14, 64])
def test_the_mean_of_a_constant_is_that_constant_bit_for_bit(constant: float, num: int) -> None:
    assert Segments.of(np.zeros(num, dtype=np.int64)).mean(np.full(num, constant)).tolist() == [constant]


def test_a_group_is_constant_only_if_all_its_values_are_equal() -> None:
    groups = Segments.of(ints(0, 0, 1, 1, -1, 2))
    # The last bit counts, and so does a lone member, which is constant; the member of no group is not looked at.
    values = floats(0.5, np.nextafter(0.5, 1), 3, 3, 99, 7)
    assert groups.is_constant(values).tolist() == [False, True, True]


def test_the_median_of_an_even_group_is_the_lower_of_the_middle_two() -> None:
    groups = Segments.of(ints(0, 0, 0, 0, 1, 1, 1, -1, 2))
    values = floats(9, 1, 3, 2, 30, 10, 20, -50, 5)
    assert groups.lower_median(values).tolist() == [2, 20, 5]


def test_low_and_high_are_the_extremes_of_each_group() -> None:
    groups = Segments.of(ints(1, 0, 1, -1, 0))
    values = floats(3, -4, 8, 100, 6)
    assert groups.low(values).tolist() == [-4, 3]
    assert groups.high(values).tolist() == [6, 8]


def test_weighted_count_adds_weights_by_label_up_to_the_given_number() -> None:
    assert count_weighted(ints(2, 0, 2), floats(0.5, 1, 0.25), 4).tolist() == [1, 0, 0.75, 0]


def test_pairs_share_a_label_only_if_both_sides_are_equal() -> None:
    # Pairs (0,1) (1,0) (0,1) (1,1) (0,0), numbered in ascending order of (first, second).
    assert pair_labels(ints(0, 1, 0, 1, 0), ints(1, 0, 1, 1, 0)).tolist() == [1, 2, 1, 3, 0]


def test_a_pair_with_minus_one_on_either_side_has_no_label() -> None:
    assert pair_labels(ints(0, -1, 0, -1), ints(-1, 0, 0, -1)).tolist() == [-1, -1, 0, -1]


def test_pairs_that_are_all_unknown_on_one_side_have_no_label() -> None:
    assert pair_labels(ints(3, 4), ints(-1, -1)).tolist() == [-1, -1]
    assert pair_labels(ints(-1, -1), ints(3, 4)).tolist() == [-1, -1]


def test_no_pairs_give_no_labels() -> None:
    assert pair_labels(ints(), ints()).tolist() == []


def test_the_neighbouring_pairs_one_wide_and_narrow_stay_apart() -> None:
    # With a width one too small, (0, 2) and (1, 0) would both become 2.
    assert pair_labels(ints(0, 1, 0, 1), ints(2, 0, 1, 2)).tolist() == [1, 2, 0, 3]


@pytest.mark.parametrize("first", [HUGE, 2**40, 3])
@pytest.mark.parametrize("second", [HUGE, 2**40, 3])
def test_pairs_of_huge_labels_are_numbered_like_small_ones(first: int, second: int) -> None:
    # Products beyond 2^62 would overflow; both sides are numbered densely first.
    pairs = pair_labels(ints(first, 0, first, -1, first), ints(second, second, 0, second, second))
    assert pairs.tolist() == [2, 0, 1, -1, 2]


def test_sorted_runs_of_no_keys_are_empty() -> None:
    order, starts = order_by_key(ints())
    assert order.tolist() == []
    assert starts.tolist() == []


@pytest.mark.parametrize("largest", [9, 2**60 - 1, 2**60, HUGE])
def test_sorting_keys_is_stable_whether_or_not_key_and_position_fit_one_integer(largest: int) -> None:
    # Five keys need 3 bits for the position, so keys from 2^60 up take the plain sort.
    order, starts = order_by_key(ints(largest, 2, largest, 0, 2))
    assert order.tolist() == [3, 1, 4, 0, 2]
    assert starts.tolist() == [0, 1, 3]
