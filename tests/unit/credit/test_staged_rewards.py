"""Rewards in stages: ladders, brevity of solved groups, bonuses of exact hits; the specification's vectors."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from groupwise import ConfigError, RecordError, StepTable, methods
from groupwise.credit import DropFailed, LadderReward, shape_group
from groupwise.methods.after_concise_r import ConciseWhenSolved
from groupwise.methods.srpo import PassAtBonus
from tests.unit.credit.rollouts import rollout


@pytest.mark.parametrize(
    ("levels", "exact", "paid"), [(0, False, 0.0), (1, False, 0.5), (3, False, 0.866), (9, False, 0.95), (4, True, 1.0)]
)
def test_an_answer_is_paid_by_how_much_of_it_matched(levels: int, exact: bool, paid: float) -> None:
    info = {"matched": levels, "exact": exact}
    assert LadderReward()(rollout({}, {"info": info})) == (0.0, paid)


def test_nothing_is_paid_without_an_answer_or_for_a_malformed_one() -> None:
    assert LadderReward()(rollout({}, {})) == (0.0, 0.0)
    assert LadderReward()(rollout({"info": {"matched": 2}, "well_formed": False})) == (0.0,)
    assert LadderReward()(rollout()) == ()


def test_a_info_key_that_counts_nothing_is_refused() -> None:
    with pytest.raises(RecordError) as caught:
        LadderReward()(rollout({"info": {"matched": "two"}}))
    assert str(caught.value) == (
        "task 't', rollout 3: the step info 'matched' is 'two', but reward 'ladder' needs the number of matched "
        "levels; let the environment give a number from 0"
    )


def test_a_ladder_that_falls_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"rungs .* fall; a better match must not pay less"):
        LadderReward(rungs=(0.0, 0.5, 0.4))


def group(lengths: list[int], solved: list[bool]) -> list[Any]:
    return [
        replace(rollout({"tokens": length, "reward": float(own)}, solved=own), id=f"t/{number}", rollout=number)
        for number, (length, own) in enumerate(zip(lengths, solved, strict=True))
    ]


def test_a_solved_group_is_paid_by_length() -> None:
    """Lengths 100 to 400 of at most 1000: 0.9, 0.8, 0.7, 0.6, and GRPO's credit of them."""
    shaped = shape_group(group([100, 200, 300, 400], [True] * 4), [ConciseWhenSolved()])
    table = StepTable.from_trajectories(shaped)
    assert table.episode_return.tolist() == pytest.approx([0.9, 0.8, 0.7, 0.6])
    credit = methods.after_concise_r().advantage(table)
    assert credit.values.tolist() == pytest.approx([1.161886, 0.387295, -0.387295, -1.161886], abs=1e-5)


def test_lengths_may_be_measured_by_the_group() -> None:
    shaped = ConciseWhenSolved(scale="group")(group([10, 12, 13], [True] * 3))
    assert [amounts[-1] for amounts in shaped] == pytest.approx([0.0, -0.5, -0.75])


def test_a_group_with_a_failure_keeps_its_returns() -> None:
    assert ConciseWhenSolved()(group([5, 500], [True, False])) == [(0.0,), (0.0,)]


def test_equal_lengths_of_a_solved_group_give_no_credit() -> None:
    shaped = shape_group(group([7, 7, 7], [True] * 3), [ConciseWhenSolved()])
    assert not methods.after_concise_r().advantage(StepTable.from_trajectories(shaped)).values.any()


def test_tasks_that_nobody_solved_are_dropped() -> None:
    table = StepTable.from_columns(
        task=list("aabbcc"), rollout=[0, 1] * 3, step=[0] * 6, reward=[0.0, 0.5, 1.0, 0.0, 1.0, 1.0]
    )
    assert DropFailed()(table).tolist() == [False, False, True, True, True, True]
    scored = StepTable.from_columns(
        task=list("aa"), rollout=[0, 1], step=[0, 0], reward=[5.0, 7.0], accuracy=[0.0, 0.0]
    )
    assert DropFailed()(scored).tolist() == [False, False]


def test_where_the_world_says_what_is_right_that_decides_and_not_the_reward() -> None:
    """Task a earned a lot without a right answer, b little with one, in the last of its steps; accuracy goes first."""
    columns: dict[str, Any] = {"task": list("aabb"), "rollout": [0, 1, 0, 0], "step": [0, 0, 0, 1]}
    table = StepTable.from_columns(**columns, reward=[1.0, 1.0, 0.0, 0.1], exact=[False, None, None, True])
    assert DropFailed()(table).tolist() == [False, False, True, True]
    judged = StepTable.from_columns(
        **columns, reward=[0.0] * 4, exact=[False, False, None, True], accuracy=[1.0, 0.0, 0.0, 0.0]
    )
    assert DropFailed()(judged).tolist() == [True, True, False, False]


def test_solved_groups_train_on_the_credit_of_their_lengths() -> None:
    """Task t is solved by all and shaped, u by nobody: the first trains, the second does not."""
    solved = shape_group(group([100, 200], [True] * 2), methods.after_concise_r().shapers)
    failed = [replace(member, task=replace(member.task, id="u")) for member in group([100, 200], [False] * 2)]
    table = StepTable.from_trajectories([*solved, *failed])
    credit = methods.after_concise_r().credit(table)
    assert methods.after_concise_r().keep(table, credit).tolist() == [True, True, False, False]
    assert credit.values.tolist() == pytest.approx([0.7071, -0.7071, 0.0, 0.0], abs=1e-3)


def table_of(returns: list[float]) -> StepTable:
    num = len(returns)
    return StepTable.from_columns(task=["t"] * num, rollout=range(num), step=[0] * num, reward=returns)


@pytest.mark.parametrize(
    ("n", "c", "hit", "miss"),
    [(8, 1, 0.999998, -0.142857), (10, 2, 0.707105, -0.176776), (8, 0, 0.0, 0.0), (8, 8, 0.0, 0.0), (8, 5, 0.0, 0.0)],
)
def test_the_bonus_of_exact_hits(n: int, c: int, hit: float, miss: float) -> None:
    table = table_of([1.0] * c + [0.25] * (n - c))
    credit = PassAtBonus()(table)
    assert credit.values.tolist() == pytest.approx([hit] * c + [miss] * (n - c), abs=1e-6)
    for step in (0, n - 1):
        derivation = credit.trace.derive(table, step)  # type: ignore[union-attr]
        assert derivation.value == pytest.approx(float(credit.values[step]), abs=1e-12)
        assert len(derivation.members) == n


def test_srpo_adds_the_bonus_to_the_graded_credit() -> None:
    values = methods.srpo().advantage(table_of([1, 0.707, 0.5, 0.5, 0, 0, 0, 0])).values
    np.testing.assert_allclose(values, [2.681400, 0.793938, 0.267884, 0.267884, *[-1.002777] * 4], atol=1e-5)


def test_fewer_rollouts_than_the_bonus_is_about_are_refused() -> None:
    PassAtBonus(k=4).check_rollouts(4)
    with pytest.raises(ConfigError) as caught:
        PassAtBonus(k=4).check_rollouts(3)
    assert str(caught.value) == (
        "pass_at_bonus: k = 4 needs at least 4 rollouts per task, but each task gets 3; raise rollout.group_size, or "
        "lower k"
    )
