"""Pairings: who is held against whom, and how much a pair counts."""

from __future__ import annotations

import numpy as np

from groupwise import StepTable
from groupwise.data.samples import Pair
from groupwise.losses import AllPairs, BestAgainstWorst


def table(returns: list[float], tasks: str = "", **extra: list[bool]) -> StepTable:
    """A rollout of one step for each return, at the task of that letter."""
    names = list(tasks or "t" * len(returns))
    return StepTable.from_columns(
        task=names, rollout=list(range(len(returns))), step=[0] * len(returns), reward=returns, **extra
    )


def test_the_best_is_held_against_the_worst_of_each_task() -> None:
    assert BestAgainstWorst()(table([0.0, 2.0, 1.0, 5.0, 4.0], "aaabb")) == [Pair(1, 0, gap=2.0), Pair(3, 4, gap=1.0)]


def test_of_equal_rollouts_the_first_counts_and_equal_groups_have_no_pair() -> None:
    assert BestAgainstWorst()(table([1.0, 1.0, 0.0, 0.0])) == [Pair(0, 2, gap=1.0)]
    assert BestAgainstWorst()(table([1.0, 1.0])) == []
    assert BestAgainstWorst()(table([1.0])) == []
    assert AllPairs()(table([1.0, 1.0])) == []


def test_all_pairs_are_those_whose_returns_differ() -> None:
    assert AllPairs(counts="pair")(table([0.0, 1.0, 1.0])) == [Pair(1, 0, gap=1.0), Pair(2, 0, gap=1.0)]


def test_returns_that_differ_by_rounding_are_no_pair() -> None:
    """The same rewards, summed in another order, miss each other by 1.1e-16."""
    steps = StepTable.from_columns(
        task=["t"] * 6, rollout=[0] * 3 + [1] * 3, step=[0, 1, 2] * 2, reward=[0.1, 0.2, 0.3, 0.3, 0.2, 0.1]
    )
    assert len(set(steps.episode_return.tolist())) == 2
    assert BestAgainstWorst()(steps) == []
    assert AllPairs()(steps) == []


def test_each_task_counts_the_same_by_default() -> None:
    pairs = AllPairs()(table([0.0, 1.0, 2.0, 1.0, 0.0], "aaabb"))
    assert pairs == [Pair(1, 0, 1 / 3, 1.0), Pair(2, 0, 1 / 3, 2.0), Pair(2, 1, 1 / 3, 1.0), Pair(3, 4, 1.0, 1.0)]
    assert AllPairs()(table([2.0, 0.0, 1.0])) == [
        Pair(0, 1, 1 / 3, 2.0),
        Pair(0, 2, 1 / 3, 1.0),
        Pair(2, 1, 1 / 3, 1.0),
    ]


def test_an_rollout_that_may_not_train_is_in_no_pair() -> None:
    """The best was dropped by the column, the worst by a filter; the middle two are left."""
    rows = table([9.0, 1.0, 2.0, 0.0], trains=[False, True, True, True])
    kept = rows.with_filters([lambda steps: steps.reward > 0])
    assert BestAgainstWorst()(kept) == [Pair(2, 1, gap=1.0)]
    assert AllPairs()(kept) == [Pair(2, 1, gap=1.0)]


def test_an_rollout_of_several_steps_is_one_rollout() -> None:
    steps = StepTable.from_columns(task=["t"] * 4, rollout=[0, 0, 1, 1], step=[0, 1, 0, 1], reward=[0.0, 1.0, 2.0, 0.0])
    assert BestAgainstWorst()(steps) == [Pair(1, 0, gap=1.0)]
    filtered = steps.with_filters([lambda _: np.array([True, False, True, False])])
    assert BestAgainstWorst()(filtered) == [Pair(1, 0, gap=1.0)]


def test_a_pair_says_why_it_is_one() -> None:
    rows = table([0.0, 2.5, 1.0])
    (extremes,) = BestAgainstWorst()(rows)
    assert BestAgainstWorst().describe_pair(rows, extremes) == (
        "best and worst rollout at the task: return 2.5 against 0"
    )
    assert AllPairs().describe_pair(rows, Pair(2, 0)) == "two rollouts at the task: return 1 against 0"
