"""Credit divided by how far its group's spreads."""

from __future__ import annotations

import pytest

from groupwise.advantages import Deviation, NoBaseline, NoScale, Relative, Scaled, StepRewardSignal
from groupwise.groups import ByState, ByTask
from groupwise.reports.explain.step import explain_step
from tests.unit.tables import walks

# Credit that is the step's own reward. s: 1 and 3; x: 5 alone; y: 2 and 2; no state: 7.
REWARD = Relative(
    by=ByTask(), of=StepRewardSignal(), baseline=NoBaseline(), scale=NoScale(), average="step", alone="raw"
)
ROWS = walks(["s", "y", "x"], ["s", "y", None], rewards=[[1, 2, 5], [3, 2, 7]])
BY_STATE = Scaled(of=REWARD, by=ByState(), scale=Deviation(eps=0.0))


def test_credit_is_divided_and_not_centred() -> None:
    # s: sample deviation sqrt(2). Equal credit has nothing to be divided by, nor has a lone one.
    half = 2**-0.5
    assert BY_STATE(ROWS).values.tolist() == pytest.approx([half, 0, 0, 3 * half, 0, 0])


def test_who_is_alone_in_the_group_is_not_compared() -> None:
    assert BY_STATE(ROWS).compared.tolist() == [True, True, False, True, True, False]


def test_nor_is_a_step_whose_credit_compared_nobody() -> None:
    lonely = Scaled(of=Relative(by=ByState(), of=StepRewardSignal(), average="step"), by=ByTask())
    assert lonely(ROWS).compared.tolist() == [True, True, False, True, True, False]


def test_the_spread_is_derived_again() -> None:
    explanation = explain_step(ROWS, BY_STATE(ROWS), task="q", attempt=1, index=0)
    assert explanation.formula == "(3 - 0) / 1.41421356 = 2.12132"
    assert explanation.list_not_derived() == ()
    assert explanation.largest_gap() <= 1e-12
