"""Filters: the pivot rollout of each task, and the tasks that are solved."""

from __future__ import annotations

import numpy as np
import pytest

from groupwise import ConfigError
from groupwise.credit import DropSolved, ZeroSpread
from groupwise.methods.mc_grpo import DropPivot
from tests.unit.tables import single_steps, table


def test_the_rollout_at_the_median_is_dropped_in_each_task() -> None:
    # Medians 2 (of 5, 2, 1) and 7 (of 7, 9, 6).
    rows = single_steps([5, 2, 1], [7, 9, 6])
    assert DropPivot()(rows).tolist() == [True, False, True, False, True, True]


def test_of_an_even_number_the_lower_median_is_the_pivot() -> None:
    assert DropPivot()(single_steps([4, 3, 2, 1])).tolist() == [True, True, False, True]


def test_of_several_rollouts_at_the_median_the_lowest_id_is_dropped() -> None:
    assert DropPivot()(single_steps([1, 0, 0, 0])).tolist() == [True, False, True, True]


def test_all_steps_of_the_pivot_are_dropped() -> None:
    rows = table(
        "task rollout step reward",
        ("q", "a", 0, 0.0),
        ("q", "a", 1, 1.0),
        ("q", "b", 0, 2.0),
        ("q", "b", 1, 3.0),
        ("q", "c", 0, 9.0),
    )
    # Returns 1, 5, 9: b is the pivot.
    assert DropPivot()(rows).tolist() == [True, True, False, False, True]


def test_a_lone_rollout_is_its_own_pivot() -> None:
    assert DropPivot()(single_steps([3])).tolist() == [False]


def test_a_long_rollout_does_not_weigh_more_in_the_median() -> None:
    rows = table(
        "task rollout step reward outcome",
        *(("q", 0, index, 0.0, 0.0) for index in range(5)),
        ("q", 1, 0, 0.0, 1.0),
        ("q", 2, 0, 0.0, 2.0),
    )
    assert DropPivot()(rows).tolist() == [True] * 5 + [False, True]


def test_a_task_is_dropped_only_if_every_rollout_reached_the_best() -> None:
    rows = single_steps([1, 1], [1, 0], [0, 0])
    assert DropSolved()(rows).tolist() == [False, False, True, True, True, True]


def test_the_best_return_is_a_setting_and_better_is_solved_too() -> None:
    rows = single_steps([1, 1], [5, 5], [6, 5])
    assert DropSolved(best=5)(rows).tolist() == [True, True, False, False, False, False]


@pytest.mark.parametrize(
    ("best", "score", "is_solved"),
    [
        (1.0, 1 - 9e-10, True),
        (1.0, 1 - 1.1e-9, False),
        (0.5, 0.5 - 9e-10, True),
        (0.5, 0.5 - 1.1e-9, False),
        (-100.0, -100 - 9e-8, True),
        (-100.0, -100 - 1.1e-7, False),
    ],
)
def test_a_sum_may_miss_the_best_by_a_billionth_of_it_but_of_no_less_than_1(
    best: float, score: float, is_solved: bool
) -> None:
    assert DropSolved(best=best)(single_steps([score])).tolist() == [not is_solved]


def test_solved_goes_by_accuracy_where_it_is_given() -> None:
    """Both tasks have a length term: the first is right throughout, the second was wrong once and earned more."""
    rows = table(
        "task rollout step reward accuracy",
        ("p", 0, 0, 0.8, 1.0),
        ("p", 1, 0, 0.9, 1.0),
        ("q", 0, 0, 1.0, 0.0),
        ("q", 1, 0, 1.0, 1.0),
    )
    assert DropSolved()(rows).tolist() == [False, False, True, True]


@pytest.mark.parametrize("rollouts", [2, 8])
def test_an_even_number_of_rollouts_has_no_pivot(rollouts: int) -> None:
    with pytest.raises(ConfigError) as caught:
        DropPivot().check_rollouts(rollouts)
    assert str(caught.value) == (
        f"rollout.group_size is {rollouts}, but the filter drop_pivot drops the rollout at the median, and only an "
        f"odd number has one; give {rollouts + 1} to train on {rollouts}"
    )
    DropPivot().check_rollouts(rollouts + 1)
    ZeroSpread().check_rollouts(rollouts)


def test_solved_goes_by_the_return_of_the_rollout_not_of_the_step() -> None:
    rows = table("task rollout step reward", ("q", 0, 0, 0.5), ("q", 0, 1, 0.5), ("q", 1, 0, 1.0))
    assert DropSolved()(rows).tolist() == [False, False, False]


def test_tasks_whose_rollouts_did_equally_well_are_dropped() -> None:
    rows = single_steps([1, 1], [1, 0], [0, 0, 0])
    assert ZeroSpread()(rows).tolist() == [False, False, True, True, False, False, False]
    # The last bit is a difference.
    assert ZeroSpread()(single_steps([1.0, np.nextafter(1.0, 2.0)])).tolist() == [True, True]


def test_a_task_with_one_rollout_is_dropped_unless_it_is_to_be_kept() -> None:
    rows = single_steps([3], [1, 1], [1, 0])
    assert ZeroSpread()(rows).tolist() == [False, False, False, True, True]
    assert ZeroSpread(alone="keep")(rows).tolist() == [True, False, False, True, True]


def test_a_lone_rollout_of_several_steps_is_still_one_rollout() -> None:
    rows = table("task rollout step reward", ("q", 0, 0, 0.0), ("q", 0, 1, 1.0))
    assert ZeroSpread(alone="keep")(rows).tolist() == [True, True]


def test_accuracy_decides_where_it_is_given() -> None:
    rows = table(
        "task rollout step reward accuracy",
        ("p", 0, 0, 0.5, 1.0),
        ("p", 1, 0, 0.7, 1.0),
        ("q", 0, 0, 0.5, 1.0),
        ("q", 1, 0, 0.5, 0.0),
    )
    assert ZeroSpread()(rows).tolist() == [False, False, True, True]


def test_only_dropping_or_keeping_is_offered_for_lone_rollouts() -> None:
    with pytest.raises(ConfigError) as caught:
        ZeroSpread(alone="raw")
    assert str(caught.value) == "ZeroSpread: alone: expected 'drop' or 'keep', found 'raw'"
