"""Credit divided by how far its group's spreads."""

from __future__ import annotations

import pytest

from groupwise.credit import ByState, ByTask, NoBaseline, NoScale, Relative, RootMeanSquare, Scaled, StepRewardSignal
from groupwise.report.explain import explain_step
from tests.unit.tables import walks

# Credit that is the step's own reward. s: 1 and 3; x: 5 alone; y: 2 and 2; no state: 7.
REWARD = Relative(
    by=ByTask(), of=StepRewardSignal(), baseline=NoBaseline(), scale=NoScale(), average="step", alone="raw"
)
ROWS = walks(["s", "y", "x"], ["s", "y", None], rewards=[[1, 2, 5], [3, 2, 7]])
BY_STATE = Scaled(of=REWARD, by=ByState(), scale=RootMeanSquare(eps=0.0))


def test_credit_is_divided_and_not_centred() -> None:
    # s: root mean square sqrt(5). y: 2, though all are equal there. A lone step has nobody's spread to go by.
    share = 5**-0.5
    assert BY_STATE(ROWS).values.tolist() == pytest.approx([share, 1, 0, 3 * share, 1, 0])


def test_credit_that_is_nearly_equal_does_not_explode() -> None:
    rows = walks(["s"], ["s"], rewards=[[2], [2 + 1e-12]])
    assert BY_STATE(rows).values.tolist() == pytest.approx([1, 1])


def test_who_is_alone_in_the_group_is_not_compared() -> None:
    assert BY_STATE(ROWS).compared.tolist() == [True, True, False, True, True, False]


def test_nor_is_a_step_whose_credit_compared_nobody() -> None:
    lonely = Scaled(of=Relative(by=ByState(), of=StepRewardSignal(), average="step"), by=ByTask())
    assert lonely(ROWS).compared.tolist() == [True, True, False, True, True, False]


def test_the_spread_is_derived_again() -> None:
    explanation = explain_step(ROWS, BY_STATE(ROWS), task="q", rollout=1, step=0)
    assert explanation.formula == "(3 - 0) / 2.23606798 = 1.34164"
    assert explanation.list_not_derived() == ()
    assert explanation.largest_gap() <= 1e-12
