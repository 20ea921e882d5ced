"""Credit that sets share, worked by hand: the specification's vectors, edges, and what is refused."""

from __future__ import annotations

import pytest

from groupwise import ConfigError, RecordError, StepTable
from groupwise.methods.after_polychromic import SetShared


def table_of(returns: list[float], kinds: str, **columns: list[object]) -> StepTable:
    num = len(returns)
    return StepTable.from_columns(
        task=["q"] * num, rollout=range(num), step=[0] * num, reward=returns, action=list(kinds), **columns
    )


@pytest.mark.parametrize(
    ("kinds", "variety", "expected"),
    [
        ("abac", "share", [0.125, 0.208333, -0.208333, -0.125]),
        ("aaab", "beyond_first", [0.0, 0.0, -0.166667, 0.166667]),
    ],
)
def test_the_numbers_of_the_specification(kinds: str, variety: str, expected: list[float]) -> None:
    credit = SetShared(size=2, variety=variety)(table_of([1.0, 1.0, 0.0, 0.0], kinds))  # type: ignore[arg-type]
    assert credit.values.tolist() == pytest.approx(expected, abs=1e-6)
    assert credit.compared.tolist() == [True] * 4


@pytest.mark.parametrize(
    ("returns", "kinds"),
    [
        ([0.0] * 9, "abcabcabc"),  # all wrong
        ([0.1] * 9, "abcdefghi"),  # equally good, each of another kind
        ([0.1] * 9, "aaaaaaaaa"),  # clones
        ([1.0, 0.3, 0.0, 0.7], "abbc"),  # one set
    ],
)
@pytest.mark.parametrize("variety", ["beyond_first", "share"])
def test_where_all_sets_are_worth_the_same_credit_is_exactly_0(returns: list[float], kinds: str, variety: str) -> None:
    credit = SetShared(variety=variety)(table_of(returns, kinds))  # type: ignore[arg-type]
    assert not credit.values.any()


def test_where_all_are_right_the_rare_kind_gains() -> None:
    values = SetShared()(table_of([1.0] * 6, "aaaaab")).values
    assert values[5] > 0
    assert values[:5].tolist() == [values[0]] * 5
    assert values.sum() == pytest.approx(0, abs=1e-15)


def test_kinds_go_step_by_step_and_by_the_column_that_is_named() -> None:
    table = StepTable.from_columns(
        task=["q"] * 6,
        rollout=[0, 0, 1, 1, 2, 2],
        step=[0, 1] * 3,
        reward=[0.0, 1.0] * 3,
        action=["left", "up", "up", "left", "left", "up"],
        answer=[None, "7", None, "7", None, "7"],
    )
    by_action = SetShared(size=2)(table).values
    assert by_action[2] > 0 > by_action[0] == by_action[4]
    assert not SetShared(size=2, key="answer")(table).values.any()


def test_a_return_beyond_0_and_1_is_refused() -> None:
    with pytest.raises(RecordError) as caught:
        SetShared()(table_of([1.0, 10.0], "ab"))
    assert str(caught.value) == (
        "task 'q', rollout 1, step 0: the rollout brought 10, but set_shared needs numbers in [0, 1]; rescale them, "
        "or hand in `outcome`"
    )


def test_groups_that_are_one_set_are_refused_before_a_run() -> None:
    SetShared().check_rollouts(5)
    with pytest.raises(ConfigError) as caught:
        SetShared().check_rollouts(4)
    assert str(caught.value) == (
        "set_shared: size = 4 needs more than 4 rollouts per task, but each task gets 4; raise rollout.group_size, or "
        "lower size"
    )
