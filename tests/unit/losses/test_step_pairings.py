"""Pairings of steps, and by verdict: who is held against whom, and how much a pair counts."""

from __future__ import annotations

from typing import Any

import pytest

from groupwise import RecordError, StepTable
from groupwise.credit import ByState, ColumnSignal, EpisodeReturn, ReturnToGo
from groupwise.data.samples import Pair
from groupwise.methods.step_apo import Siblings
from groupwise.methods.w_dpo import ByVerdict


def walk(**extra: list[Any]) -> StepTable:
    """Three rollouts through s0 and, two of them, s1; they end with 1, 0 and 3."""
    return StepTable.from_columns(
        task=["t"] * 5,
        rollout=[0, 0, 1, 1, 2],
        step=[0, 1, 0, 1, 0],
        state=["s0", "s1", "s0", "s1", "s0"],
        reward=[0.0, 1.0, 0.0, 0.0, 3.0],
        **extra,
    )


def siblings(**fields: Any) -> Siblings:
    return Siblings(by=ByState(), of=ReturnToGo(gamma=1.0), **fields)


def test_the_best_step_of_a_state_is_held_against_the_worst() -> None:
    assert siblings()(walk()) == [Pair(2, 1, 1.0, 3.0, 0, 0), Pair(0, 1, 1.0, 1.0, 1, 1)]


def test_all_pairs_of_a_state_share_its_weight_by_default() -> None:
    third = 1 / 3
    assert siblings(which="all")(walk()) == [
        Pair(0, 1, third, 1.0, 0, 0),
        Pair(2, 0, third, 2.0, 0, 0),
        Pair(2, 1, third, 3.0, 0, 0),
        Pair(0, 1, 1.0, 1.0, 1, 1),
    ]
    assert {pair.weight for pair in siblings(which="all", counts="pair")(walk())} == {1.0}


def test_steps_of_one_action_are_no_pair() -> None:
    assert siblings()(walk(action=["up", "left", "up", "right", "up"])) == [Pair(0, 1, 1.0, 1.0, 1, 1)]


def test_steps_that_may_not_train_are_in_no_pair() -> None:
    assert siblings()(walk(trains=[True, True, True, False, False])) == [Pair(0, 1, 1.0, 1.0, 0, 0)]


def test_an_rollout_that_comes_back_to_a_state_is_no_pair_with_itself() -> None:
    table = StepTable.from_columns(
        task=["t"] * 2, rollout=[0, 0], step=[0, 1], state=["s", "s"], reward=[-1.0, 1.0], action=["a", "b"]
    )
    assert siblings()(table) == []
    assert siblings(which="all")(table) == []


def test_where_best_and_worst_did_the_same_the_widest_gap_of_two_actions_counts() -> None:
    """In s0 rollouts went on to 1, 0 and 3; the best and the worst both went up."""
    pairs = siblings()(walk(action=["down", "left", "up", "left", "up"]))
    assert pairs == [Pair(2, 0, 1.0, 2.0, 0, 0)]


def test_values_that_differ_by_rounding_are_no_pair() -> None:
    table = StepTable.from_columns(
        task=["t"] * 2, rollout=[0, 1], step=[0, 0], state=["s", "s"], reward=[0.1 + 0.2, 0.3], verdict=[0.5, 0.75]
    )
    assert siblings()(table) == []
    assert BY_VERDICT(table) == [Pair(1, 0, 0.25, 0.25)]


def judge(verdict: list[float], returns: list[float], tasks: str = "tttt") -> StepTable:
    num = len(returns)
    return StepTable.from_columns(
        task=list(tasks[:num]), rollout=range(num), step=[0] * num, reward=returns, verdict=verdict
    )


BY_VERDICT = ByVerdict(outcome=EpisodeReturn(), verdict=ColumnSignal(name="verdict"))


def test_outcomes_decide_and_verdicts_weigh_what_they_leave_open() -> None:
    pairs = BY_VERDICT(judge([0.5, 0.75, 1.0], [1.0, 1.0, 0.0]))
    assert pairs == [Pair(1, 0, 0.25, 0.25), Pair(0, 2, 1.0, 1.0), Pair(1, 2, 1.0, 1.0)]


def test_a_pair_of_two_outcomes_weighs_1_however_little_they_differ() -> None:
    assert BY_VERDICT(judge([0.5, 0.0], [0.75, 1.0])) == [Pair(1, 0, 1.0, 0.25)]


def test_what_both_judges_find_equal_and_other_tasks_are_no_pair() -> None:
    assert BY_VERDICT(judge([0.5, 0.5], [1.0, 1.0])) == []
    assert BY_VERDICT(judge([0.5, 0.5], [1.0, 0.0], "tu")) == []


def test_the_verdict_of_an_rollout_is_the_mean_of_its_steps() -> None:
    table = StepTable.from_columns(
        task=["t"] * 3, rollout=[0, 0, 1], step=[0, 1, 0], reward=[0.0, 1.0, 1.0], verdict=[1.0, 0.0, 1.0]
    )
    assert BY_VERDICT(table) == [Pair(1, 0, 0.5, 0.5)]


def test_a_verdict_beyond_its_range_is_refused() -> None:
    with pytest.raises(RecordError) as caught:
        BY_VERDICT(judge([0.5, 7.0], [1.0, 0.0]))
    assert str(caught.value) == (
        "task 't', rollout 1, step 0: its verdict is 7, but pairs are weighed by verdicts from 0 to 1; scale what "
        "judges the steps"
    )


def test_a_pair_of_steps_says_what_they_were_worth() -> None:
    pair = siblings()(walk())[0]
    assert siblings().describe_pair(walk(), pair) == "two steps in one state: ReturnToGo(gamma=1.0) 3 against 0"


def test_a_pair_by_verdict_says_which_judge_told_the_two_apart() -> None:
    rows = StepTable.from_columns(
        task=["t"] * 3, rollout=[0, 1, 2], step=[0] * 3, reward=[1.0, 0.0, 0.0], verdict=[0.0, 0.25, 0.75]
    )
    pairing = ByVerdict(outcome=EpisodeReturn(), verdict=ColumnSignal(name="verdict"))
    assert [pairing.describe_pair(rows, pair) for pair in pairing(rows)] == [
        "their outcomes differ: 1 against 0",
        "their outcomes differ: 1 against 0",
        "equal outcomes, verdicts differ: 0.75 against 0.25",
    ]
