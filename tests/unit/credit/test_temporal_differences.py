"""Credit by temporal differences, worked out by hand."""

from __future__ import annotations

import pytest

from groupwise import RecordError, StepTable
from groupwise.credit import ByState, NoScale, Relative, ReturnToGo, TemporalDifferences
from groupwise.report.explain import explain_step
from tests.unit.tables import columns, walks

# Gamma 1/2. Returns: rollout 0: 1, 2; rollout 1: 0, 0; rollout 2: 4, 0 (its reward comes first).
# s: 1, 0, 4, mean 5/3; x: 2, 0, mean 1; y: rollout 2 alone.
ROWS = walks(["s", "x"], ["s", "x"], ["s", "y"], rewards=[[0, 2], [0, 0], [4, 0]])
RETURNS = ReturnToGo(gamma=0.5)


def take_differences(lam: float, truncated: str = "zero") -> TemporalDifferences:
    above = Relative(by=ByState(), of=RETURNS, scale=NoScale(), average="step")
    return TemporalDifferences(of=above, returns=RETURNS, gamma=0.5, lam=lam, truncated=truncated)


def test_a_step_has_what_it_changed_in_the_value() -> None:
    # First steps: 0 + 1/2 x 1 - 5/3 = -7/6, twice, and 4 + 1/2 x 0 - 5/3 = 7/3; last ones: 2 - 1, 0 - 1, 0 - 0.
    assert take_differences(0.0)(ROWS).values.tolist() == pytest.approx([-7 / 6, 1, -7 / 6, -1, 7 / 3, 0])


def test_and_a_share_of_what_followed() -> None:
    # A quarter of the next step's: -7/6 + 1/4, -7/6 - 1/4.
    assert take_differences(0.5)(ROWS).values.tolist() == pytest.approx([-11 / 12, 1, -17 / 12, -1, 7 / 3, 0])


def test_with_all_that_followed_the_values_on_the_way_cancel() -> None:
    whole = take_differences(1.0)(ROWS)
    assert whole.values.tolist() == take_differences(1.0).of(ROWS).values.tolist()
    assert whole.compared.tolist() == [True, True, True, True, True, False]


def test_a_lone_state_is_compared_by_what_follows_it() -> None:
    rows = walks(["p", "x"], ["q", "x"], rewards=[[0, 2], [0, 0]])
    # x is worth 1; p its own return 1, q 0. p: 1/2 x 1 - 1, q: 1/2 x 1 - 0.
    credit = take_differences(0.0)(rows)
    assert credit.values.tolist() == pytest.approx([-0.5, 1, 0.5, -1])
    assert credit.compared.all()
    assert take_differences(1.0)(rows).compared.tolist() == [False, True, False, True]


CUT = {
    **columns(
        "task rollout step state reward stop",
        ("q", 0, 0, "s", 0.0, None),
        ("q", 0, 1, "x", 2.0, "terminated"),
        ("q", 1, 0, "s", 0.0, None),
        ("q", 1, 1, "x", 0.0, "truncated"),
    )
}


def test_after_a_limit_the_last_value_may_be_expected_again() -> None:
    # x is worth 1, s 1/2. The cut rollout's last step: 0 + 1/2 x 1 - 1 instead of 0 - 1.
    table = StepTable.from_columns(**CUT)
    assert take_differences(0.0)(table).values.tolist() == [0, 1, 0, -1]
    assert take_differences(0.0, "value")(table).values.tolist() == [0, 1, 0, -0.5]
    # At lam 1 the first step of that rollout has a quarter of the value too.
    assert take_differences(1.0, "value")(table).values.tolist() == [0.5, 1, -0.25, -0.5]


def test_what_follows_a_limit_is_not_guessed_where_nothing_says_how_rollouts_ended() -> None:
    with pytest.raises(RecordError) as caught:
        take_differences(0.0, "value")(ROWS)
    assert str(caught.value).startswith("the table has no column 'stop', which this method reads;")


def test_the_number_is_derived_again_from_rewards_and_values() -> None:
    table, part = StepTable.from_columns(**CUT), take_differences(0.5, "value")
    explanation = explain_step(table, part(table), task="q", rollout=1, step=0)
    assert explanation.formula == "1 x 0 + 0.25 x -0.5 = -0.125"
    assert [(member.step, member.value) for member in explanation.members] == [(0, 0.5), (1, 1.0)]
    assert explanation.largest_gap() == 0
