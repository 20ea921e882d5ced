"""Credit shared by the steps of a group."""

from __future__ import annotations

import pytest

from groupwise import ConfigError, StepTable
from groupwise.credit import ByState, ByTask, NoBaseline, NoScale, Relative, StepRewardSignal
from groupwise.data.credit import Shared
from groupwise.methods.salt import Merged
from tests.unit.tables import table, walks

# Credit that is the step's own reward, so that the shared means can be read off.
REWARD = Relative(
    by=ByTask(), of=StepRewardSignal(), baseline=NoBaseline(), scale=NoScale(), average="step", alone="raw"
)

# State s: rollout 0 with 1 and 3, rollout 1 with 8. State x: rollout 1 alone, twice. State y: rollout 0 and 2.
ROWS = walks(["s", "s", "y"], ["s", "x", "x"], ["y", None], rewards=[[1, 3, 10], [8, 5, 7], [20, 9]])


def merge_credit(count: str = "rollout", rows: StepTable = ROWS) -> Shared:
    trace = Merged(of=REWARD, by=ByState(), count=count)(rows).trace
    assert isinstance(trace, Shared)
    return trace


def test_steps_of_a_group_that_two_rollouts_pass_share_the_mean_over_rollouts() -> None:
    # s: rollouts 2 and 8, mean 5. y: 10 and 20, mean 15. x and the step without a state keep their own.
    assert merge_credit().values.tolist() == [5, 5, 15, 5, 5, 7, 15, 9]


def test_each_pass_may_count() -> None:
    # s: 1, 3, 8, mean 4.
    assert merge_credit("step").values.tolist() == [4, 4, 15, 4, 5, 7, 15, 9]


def test_rollouts_count_once_by_default() -> None:
    assert Merged(of=REWARD, by=ByState()).count == "rollout"


def test_the_trace_shows_who_shared_and_what() -> None:
    trace = merge_credit()
    # s is group 0, y group 1; x is no group of several rollouts.
    assert trace.label.tolist() == [0, 0, 1, 0, -1, -1, 1, -1]
    assert trace.of.values.tolist() == [1, 3, 10, 8, 5, 7, 20, 9]
    assert trace.part == Merged(of=REWARD, by=ByState())


def test_the_steps_are_compared_as_the_shared_credit_was() -> None:
    lone = Relative(by=ByState(), of=StepRewardSignal(), scale=NoScale())
    trace = Merged(of=lone, by=ByTask())(ROWS).trace
    # By state: s and y compare, x (one rollout) and None do not; sharing by task changes none of it.
    assert trace.compared.tolist() == [True, True, True, True, False, False, True, False]
    # Credit -4, -2, -5 | 3, 0, 0 | 5, 0: rollouts' means -11/3, 1, 2.5, their mean shared by all.
    assert trace.values.tolist() == pytest.approx([(-11 / 3 + 1 + 2.5) / 3] * 8, rel=1e-12)


def test_groups_of_three_rollouts_share_too() -> None:
    rows = walks(["s"], ["s"], ["s"], rewards=[[1], [2], [9]])
    assert merge_credit(rows=rows).values.tolist() == [4, 4, 4]


def test_a_group_that_one_rollout_passes_keeps_its_credit() -> None:
    rows = walks(["s", "s"], ["t"], rewards=[[1, 3], [5]])
    trace = merge_credit(rows=rows)
    assert trace.values.tolist() == [1, 3, 5]
    assert trace.label.tolist() == [-1, -1, -1]


def test_sharing_stays_within_the_task() -> None:
    rows = table("task rollout step state reward", ("p", 0, 0, "s", 1.0), ("q", 0, 0, "s", 3.0), ("q", 1, 0, "s", 5.0))
    assert merge_credit(rows=rows).values.tolist() == [1, 4, 4]


def test_equal_credit_is_shared_bit_for_bit() -> None:
    rows = walks(*[["s"]] * 7, rewards=[[0.1]] * 7)
    assert merge_credit(rows=rows).values.tolist() == [0.1] * 7


def test_only_rollouts_or_steps_can_count() -> None:
    with pytest.raises(ConfigError) as caught:
        Merged(of=REWARD, by=ByState(), count="row")
    assert str(caught.value) == "Merged: count: expected 'rollout' or 'step', found 'row'"
