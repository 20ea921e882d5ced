"""The comparison within groups, on tables whose every number is worked out in a comment."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from groupwise import ConfigError, RecordError, StepTable
from groupwise.credit import (
    ByState,
    ByTask,
    ColumnSignal,
    Deviation,
    EpisodeReturn,
    LeaveOneOut,
    MeanAbsoluteDeviation,
    Median,
    NoBaseline,
    NoScale,
    Relative,
    StepRewardSignal,
)
from groupwise.data.credit import Comparison
from tests.unit.tables import single_steps, table, walks


def by_task(**fields: Any) -> Relative:
    return Relative(**({"by": ByTask(), "of": EpisodeReturn(), "scale": NoScale()} | fields))


def by_state(**fields: Any) -> Relative:
    return Relative(**({"by": ByState(), "of": StepRewardSignal(), "scale": NoScale()} | fields))


def trace_of(estimator: Relative, rows: StepTable) -> Comparison:
    trace = estimator(rows).trace
    assert isinstance(trace, Comparison)
    return trace


def test_credit_is_the_distance_from_the_mean_over_deviation_and_eps() -> None:
    # 1, 3, 5: mean 3, sample deviation 2, eps 2. 0, 2: mean 1, deviation sqrt(2), eps 2.
    credit = by_task(scale=Deviation(eps=2))(single_steps([1, 3, 5], [0, 2]))
    one = 1 / (math.sqrt(2) + 2)
    assert credit.values.tolist() == [-0.5, 0, 0.5, -one, one]
    assert credit.compared.tolist() == [True] * 5


def test_mean_sample_deviation_rollouts_and_zero_are_the_defaults() -> None:
    plain = Relative(by=ByTask(), of=EpisodeReturn())
    assert plain.config() == {
        "kind": "relative",
        "by": {"kind": "by_task"},
        "of": {"kind": "episode_return"},
        "baseline": {"kind": "mean"},
        "scale": {"kind": "deviation", "ddof": 1, "eps": 1e-6, "factor": 1.0},
        "average": "rollout",
        "alone": "zero",
        "virtual": [],
        "virtual_is_company": True,
    }
    assert plain(single_steps([1, 3, 5])).values.tolist() == [-2 / (2 + 1e-6), 0, 2 / (2 + 1e-6)]


LONG_AND_SHORT = table(
    "task rollout step reward outcome", *(("q", 0, i, 0.0, 0.0) for i in range(3)), ("q", 1, 0, 0.0, 4.0)
)


def test_each_rollout_counts_once_however_long_it_is() -> None:
    # Returns 0 and 4: mean 2, sample deviation sqrt(8).
    assert by_task()(LONG_AND_SHORT).values.tolist() == [-2, -2, -2, 2]
    scaled = by_task(scale=Deviation(eps=0))(LONG_AND_SHORT).values
    assert scaled.tolist() == pytest.approx([-2 / math.sqrt(8)] * 3 + [2 / math.sqrt(8)], rel=1e-15)


def test_each_step_counts_where_steps_are_averaged() -> None:
    # 0, 0, 0, 4: mean 1; squares 1 + 1 + 1 + 9 = 12, over 3, root 2.
    assert by_task(average="step")(LONG_AND_SHORT).values.tolist() == [-1, -1, -1, 3]
    assert by_task(average="step", scale=Deviation(eps=0))(LONG_AND_SHORT).values.tolist() == [-0.5, -0.5, -0.5, 1.5]


# Rollout 0 passes the state twice, with rewards 1 and 3; rollout 1 once, with 6. Other states are visited once.
TWICE = walks(["s", "s", "x"], ["s", None], rewards=[[1, 3, 9], [6, 7]])


def test_an_rollout_that_passes_a_group_twice_counts_with_its_mean() -> None:
    # Rollouts count 2 and 6: mean 4. Each step keeps its own value: 1 - 4, 3 - 4, 6 - 4.
    credit = by_state()(TWICE)
    assert credit.values.tolist() == [-3, -1, 0, 2, 0]
    assert credit.compared.tolist() == [True, True, False, True, False]


def test_the_deviation_is_over_the_rollouts_means() -> None:
    # 2 and 6: squares 4 + 4, over 1.
    deviation = math.sqrt(8)
    credit = by_state(scale=Deviation(eps=0))(TWICE)
    assert credit.values.tolist() == pytest.approx([-3 / deviation, -1 / deviation, 0, 2 / deviation, 0], rel=1e-15)


def test_the_others_are_the_other_rollouts() -> None:
    # Steps of rollout 0 against 6, the step of rollout 1 against 2.
    assert by_state(baseline=LeaveOneOut())(TWICE).values.tolist() == [-5, -3, 0, 4, 0]


def test_each_pass_counts_where_steps_are_averaged() -> None:
    # 1, 3, 6: mean 10/3.
    values = by_state(average="step")(TWICE).values
    assert values.tolist() == pytest.approx([1 - 10 / 3, 3 - 10 / 3, 0, 6 - 10 / 3, 0], rel=1e-15)


def test_an_rollout_alone_with_itself_is_alone_unless_steps_are_averaged() -> None:
    rows = walks(["s", "s"], rewards=[[1, 3]])
    once = by_state()(rows)
    assert (once.values.tolist(), once.compared.tolist()) == ([0, 0], [False, False])
    each = by_state(average="step")(rows)
    assert (each.values.tolist(), each.compared.tolist()) == ([-1, 1], [True, True])


@pytest.mark.parametrize("average", ["rollout", "step"])
def test_a_group_of_one_gets_0_and_is_not_compared(average: str) -> None:
    credit = by_task(average=average)(single_steps([5], [1, 0]))
    assert credit.values.tolist() == [0, 0.5, -0.5]
    assert credit.compared.tolist() == [False, True, True]


@pytest.mark.parametrize("average", ["rollout", "step"])
def test_a_group_of_one_may_get_its_raw_signal_and_is_still_not_compared(average: str) -> None:
    credit = by_task(average=average, alone="raw", scale=Deviation())(single_steps([5], [1, 1]))
    assert credit.values.tolist() == [5, 0, 0]
    assert credit.compared.tolist() == [False, True, True]


def test_a_step_in_no_group_gets_0_even_where_lone_steps_get_their_raw_signal() -> None:
    # x is alone and keeps 9; the last step has no state and gets 0.
    credit = by_state(alone="raw")(TWICE)
    assert credit.values.tolist() == [-3, -1, 9, 2, 0]


def test_a_group_of_one_may_be_an_error_that_names_the_step_and_the_grouper() -> None:
    with pytest.raises(RecordError) as caught:
        by_state(alone="error")(TWICE)
    assert str(caught.value) == (
        "task 'q', rollout 0, step 2: no other step in its group (ByState); add rollouts, or set alone to 'zero' "
        "or 'raw'"
    )


def test_no_error_is_raised_for_steps_in_no_group() -> None:
    rows = walks(["s", None], ["s"], rewards=[[1, 5], [3]])
    assert by_state(alone="error")(rows).values.tolist() == [-1, 0, 1]


def test_equal_members_give_exactly_0_and_are_compared() -> None:
    credit = by_task(scale=Deviation())(single_steps([0.1] * 14))
    assert credit.values.tolist() == [0.0] * 14
    assert credit.compared.all()


def test_equal_rollouts_give_0_to_all_their_steps_even_where_steps_differ() -> None:
    # Rollout 0 counts (1 + 3) / 2 = 2, rollout 1 counts 2: all members equal.
    credit = by_state(scale=Deviation())(walks(["s", "s"], ["s"], rewards=[[1, 3], [2]]))
    assert credit.values.tolist() == [0, 0, 0]
    assert not np.signbit(credit.values).any()
    assert credit.compared.tolist() == [True] * 3


def test_one_flat_group_does_not_flatten_another() -> None:
    assert by_task()(single_steps([2, 2], [0, 2])).values.tolist() == [0, 0, -1, 1]


def test_a_scale_of_0_gives_0_and_not_infinity() -> None:
    # Without a baseline the values stay 3, but their deviation without eps is 0.
    credit = by_task(baseline=NoBaseline(), scale=Deviation(eps=0))(single_steps([3, 3]))
    assert credit.values.tolist() == [0, 0]


def test_without_a_baseline_the_signal_itself_is_scaled() -> None:
    # 1, 3: mean distance from the mean 1. 3, 9: 3.
    credit = by_task(baseline=NoBaseline(), scale=MeanAbsoluteDeviation())(single_steps([1, 3], [3, 9]))
    assert credit.values.tolist() == [1, 3, 1, 3]


def test_the_median_may_be_the_baseline() -> None:
    assert by_task(baseline=Median())(single_steps([1, 2, 9])).values.tolist() == [-1, 0, 7]


def test_made_up_members_join_the_statistics_and_receive_nothing() -> None:
    # 0, 2 and the made-up 4: mean 2; squares 4 + 0 + 4 over 2: deviation 2.
    credit = by_task(scale=Deviation(eps=0), virtual=(4.0,))(single_steps([0, 2]))
    assert credit.values.tolist() == [-1, 0]


def test_every_group_gets_all_made_up_members() -> None:
    # 3 with 1 and 5: mean 3. 0 and 9 with 1 and 5: mean 15/4. -6 with 1 and 5: mean 0.
    credit = by_task(virtual=(1.0, 5.0))(single_steps([3], [0, 9], [-6]))
    assert credit.values.tolist() == [0, -3.75, 5.25, -6]


def test_made_up_members_join_no_group_of_steps_that_have_none() -> None:
    # s: 2, 6 and 10: mean 6. x: 9 and 10: mean 9.5.
    credit = by_state(virtual=(10.0,))(TWICE)
    assert credit.values.tolist() == [-5, -3, -0.5, 0, 0]
    assert credit.compared.tolist() == [True, True, True, True, False]


def test_made_up_members_count_beside_steps_too() -> None:
    # 1, 3, 6 and 10: mean 5.
    assert by_state(average="step", virtual=(10.0,))(TWICE).values.tolist() == [-4, -2, -0.5, 1, 0]


@pytest.mark.parametrize("virtual", [(9.0,), (9.0, 9.0)])
def test_made_up_members_may_be_no_company(virtual: tuple[float, ...]) -> None:
    estimator = by_task(virtual=virtual, virtual_is_company=False, alone="raw")
    credit = estimator(single_steps([3], [0, 0]))
    expected = -9 * len(virtual) / (2 + len(virtual))
    assert credit.values.tolist() == pytest.approx([3, expected, expected], rel=1e-15)
    assert credit.compared.tolist() == [False, True, True]


def test_made_up_members_are_company_by_default() -> None:
    credit = by_task(virtual=(9.0,), alone="raw")(single_steps([3]))
    assert credit.values.tolist() == [-3]
    assert credit.compared.tolist() == [True]


def test_made_up_members_equal_to_all_others_leave_exactly_0() -> None:
    credit = by_task(virtual=(1.0,), scale=Deviation())(single_steps([1, 1], [0, 0]))
    # 0, 0, 1: mean 1/3, sample deviation sqrt(1/3).
    expected = -(1 / 3) / (math.sqrt(1 / 3) + 1e-6)
    assert credit.values.tolist() == [0, 0, pytest.approx(expected, rel=1e-14), pytest.approx(expected, rel=1e-14)]


# States s and u each hold one rollout of another policy and one of the policy's own; t holds own rollouts alone.
# The off-policy step without a state is in no group, and marks none.
MIXED = table(
    "task rollout step state reward off_policy",
    ("q", 0, 0, "s", 0.0, True),
    ("q", 1, 0, "s", 2.0, False),
    ("q", 2, 0, "t", 0.0, False),
    ("q", 3, 0, "t", 6.0, False),
    ("q", 4, 0, "u", 0.0, False),
    ("q", 5, 0, "u", 8.0, True),
    ("q", 6, 0, None, 5.0, True),
    ("q", 7, 0, "v", 0.0, False),
    ("q", 8, 0, "v", 10.0, False),
)


def test_groups_with_members_of_another_policy_may_have_a_scale_of_their_own() -> None:
    # Distances 1, 3, 4 and 5; the mean distance divides t and v, nothing divides s and u.
    estimator = by_state(scale=MeanAbsoluteDeviation(), mixed_scale=NoScale())
    assert estimator(MIXED).values.tolist() == [-1, 1, -1, 1, -4, 4, 0, -1, 1]


def test_without_a_scale_of_their_own_mixed_groups_are_divided_as_others() -> None:
    assert by_state(scale=MeanAbsoluteDeviation())(MIXED).values.tolist() == [-1, 1, -1, 1, -1, 1, 0, -1, 1]


def test_the_trace_shows_signal_group_baseline_and_scale() -> None:
    estimator = by_state(scale=Deviation(eps=0.5))
    trace = trace_of(estimator, TWICE)
    assert trace.signal.tolist() == [1, 3, 9, 6, 7]
    assert trace.label.tolist() == [0, 0, 1, 0, -1]
    # Steps in the group of 2 and 6: baseline 4, deviation sqrt(8) + 0.5. Nothing for the lone one and the last.
    np.testing.assert_array_equal(trace.baseline, [4, 4, np.nan, 4, np.nan])
    scale = math.sqrt(8) + 0.5
    np.testing.assert_allclose(trace.scale, [scale, scale, np.nan, scale, np.nan], rtol=1e-15)
    assert trace.part is estimator
    assert trace.of is None


def test_the_trace_of_a_flat_group_shows_the_scale_it_would_have_used() -> None:
    trace = trace_of(by_task(scale=Deviation(eps=0.5)), single_steps([2, 2]))
    assert trace.scale.tolist() == [0.5, 0.5]
    assert trace.baseline.tolist() == [2, 2]


def test_the_baseline_in_the_trace_is_what_each_step_was_compared_with() -> None:
    # Leave-one-out: each rollout sees the mean of the others.
    trace = trace_of(by_task(baseline=LeaveOneOut()), single_steps([1, 3, 8]))
    assert trace.baseline.tolist() == [5.5, 4.5, 2]


def test_the_same_column_is_compared_by_any_grouper() -> None:
    rows = table("task rollout step reward luck", ("q", 0, 0, 0.0, 2), ("q", 1, 0, 0.0, 4))
    assert by_task(of=ColumnSignal(name="luck"))(rows).values.tolist() == [-1, 1]


@pytest.mark.parametrize("field", ["average", "alone"])
def test_a_word_that_is_not_offered_is_refused(field: str) -> None:
    offered = {"average": "'rollout' or 'step'", "alone": "'zero', 'raw' or 'error'"}[field]
    with pytest.raises(ConfigError) as caught:
        by_task(**{field: "row"})
    assert str(caught.value) == f"Relative: {field}: expected {offered}, found 'row'"
