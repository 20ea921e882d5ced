"""Grouping by state and the states before it."""

from __future__ import annotations

import pytest

from groupwise.credit import ByHistory, ByState
from tests.unit.tables import number_groups, table, walks


def test_depth_0_is_by_state() -> None:
    rows = walks(["a", "b", None, "a"], ["b", "a"])
    assert number_groups(ByHistory(depth=0), rows) == number_groups(ByState(), rows) == [0, 1, -1, 0, 1, 0]


# Three rollouts: a b c, b b c, a b c d. Steps in that order.
THREE = walks(["a", "b", "c"], ["b", "b", "c"], ["a", "b", "c", "d"])


@pytest.mark.parametrize(
    ("depth", "labels"),
    [
        # a b c | b b c | a b c d
        (0, [0, 1, 2, 1, 1, 2, 0, 1, 2, 3]),
        # -- (a,b) (b,c) | -- (b,b) (b,c) | -- (a,b) (b,c) (c,d)
        (1, [-1, 0, 1, -1, 2, 1, -1, 0, 1, 3]),
        # -- -- (a,b,c) | -- -- (b,b,c) | -- -- (a,b,c) (b,c,d)
        (2, [-1, -1, 0, -1, -1, 1, -1, -1, 0, 2]),
        # only the last step of the last rollout has three steps before it
        (3, [-1, -1, -1, -1, -1, -1, -1, -1, -1, 0]),
        (4, [-1] * 10),
        (40, [-1] * 10),
    ],
)
def test_each_level_asks_for_one_more_equal_state(depth: int, labels: list[int]) -> None:
    assert number_groups(ByHistory(depth=depth), THREE) == labels


def test_the_order_of_history_counts() -> None:
    rows = walks(["a", "b", "c"], ["b", "a", "c"])
    assert number_groups(ByHistory(depth=2), rows) == [-1, -1, 0, -1, -1, 1]


def test_a_missing_row_breaks_the_history_across_it_and_no_further() -> None:
    # Indices 0 1 3 4: the steps 3 and 4 have no history over the gap; 4 still has 3.
    rows = table("task rollout step state reward", *(("q", 0, index, "s", 0.0) for index in (0, 1, 3, 4)))
    assert number_groups(ByHistory(depth=1), rows) == [-1, 0, -1, 0]
    assert number_groups(ByHistory(depth=2), rows) == [-1, -1, -1, -1]


def test_a_state_of_none_anywhere_in_the_window_leaves_the_step_without_a_group() -> None:
    rows = walks(["a", None, "b", "c", "d"])
    assert number_groups(ByHistory(depth=0), rows) == [0, -1, 1, 2, 3]
    assert number_groups(ByHistory(depth=1), rows) == [-1, -1, -1, 0, 1]
    assert number_groups(ByHistory(depth=2), rows) == [-1, -1, -1, -1, 0]


def test_the_history_of_an_rollout_does_not_reach_into_the_rollout_before_it() -> None:
    # Rollout 1 starts at index 1, right after rollout 0's index 0: still no history.
    rows = table("task rollout step state reward", ("q", 0, 0, "a", 0.0), ("q", 1, 1, "b", 0.0))
    assert number_groups(ByHistory(depth=1), rows) == [-1, -1]


def test_equal_histories_of_two_tasks_stay_apart() -> None:
    rows = table(
        "task rollout step state reward",
        *((task, 0, index, state, 0.0) for task in "pq" for index, state in enumerate("ab")),
    )
    assert number_groups(ByHistory(depth=1), rows) == [-1, 0, -1, 1]


def test_a_history_that_one_rollout_has_alone_may_be_left_without_a_group() -> None:
    # Rollout 0 comes twice from a to b; rollout 1 is at b too, but came from c.
    rows = walks("abab", "cb")
    assert number_groups(ByHistory(depth=1), rows) == [-1, 0, 1, 0, -1, 2]
    assert number_groups(ByHistory(depth=0, peers="other_rollouts"), rows) == [-1, 0, -1, 0, -1, 0]
    assert number_groups(ByHistory(depth=1, peers="other_rollouts"), rows) == [-1] * 6
    shared = walks("abab", "ab")
    assert number_groups(ByHistory(depth=1, peers="other_rollouts"), shared) == [-1, 0, -1, 0, -1, 0]
