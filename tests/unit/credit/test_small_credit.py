"""A filter that reads the credit: it is asked once there is some, and credit does not depend on it."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import pytest

from groupwise import Algorithm, ConfigError, Credit, Part, StepTable, methods
from groupwise.credit import ByTask, EpisodeReturn, NoScale, OverlongMask, Relative, SmallCredit, Whitened
from groupwise.report.explained_step import DroppedStep, find_filters_that_drop, find_steps_dropped_by_credit
from tests.unit.tables import single_steps, table

DR_GRPO = Relative(by=ByTask(), of=EpisodeReturn(), scale=NoScale())
RETURNS = single_steps([0, 1, 5])  # mean 2: credit -2, -1, 3


def test_steps_of_small_credit_are_dropped() -> None:
    algorithm = Algorithm(advantage=DR_GRPO, filters=(SmallCredit(min_size=1.5),))
    assert algorithm.credit(RETURNS).values.tolist() == [-2, -1, 3]
    assert algorithm.keep(RETURNS).tolist() == [True, False, True]
    assert algorithm.keep(RETURNS, algorithm.credit(RETURNS)).tolist() == [True, False, True]


def test_credit_of_exactly_the_smallest_size_trains() -> None:
    assert Algorithm(advantage=DR_GRPO, filters=(SmallCredit(min_size=2),)).keep(RETURNS).tolist() == [
        True,
        False,
        True,
    ]


def test_what_is_kept_comes_back_in_the_order_of_the_rows() -> None:
    rows = table("task rollout step reward", ("q", 2, 0, 5.0), ("q", 0, 0, 0.0), ("q", 1, 0, 1.0))
    algorithm = Algorithm(advantage=DR_GRPO, filters=(SmallCredit(min_size=1.5),))
    assert algorithm.keep(rows).tolist() == [True, True, False]


def test_credit_does_not_depend_on_a_filter_that_reads_it() -> None:
    """Whitening leaves out what other filters drop; what this one drops is known only afterwards, and counts."""
    rows = table(
        "task rollout step reward tokens cut",
        ("q", 0, 0, 0.0, 1, False),
        ("q", 1, 0, 1.0, 1, False),
        ("q", 2, 0, 5.0, 1, False),
        ("q", 3, 0, 6.0, 9, True),
    )
    plain = Algorithm(advantage=Whitened(of=DR_GRPO), filters=(OverlongMask(),))
    both = Algorithm(advantage=Whitened(of=DR_GRPO), filters=(SmallCredit(min_size=0.5), OverlongMask()))
    assert both.credit(rows).values.tolist() == plain.credit(rows).values.tolist()
    # Returns 0, 1, 5 whitened: mean 2, deviation sqrt(7): -0.756, -0.378, 1.134.
    assert plain.credit(rows).values[:3] == pytest.approx([-2 / 7**0.5, -1 / 7**0.5, 3 / 7**0.5])
    assert both.keep(rows).tolist() == [True, False, True, False]


class AsksWhoTrains(Part, slot="filter"):
    reads_credit: ClassVar[bool] = True

    def __call__(self, table: StepTable, credit: Credit) -> Any:
        return table.trains & (credit.values > 0)


def test_a_credit_filter_sees_what_the_other_filters_leave() -> None:
    rows = table("task rollout step reward cut", ("q", 0, 0, 0.0, False), ("q", 1, 0, 1.0, True))
    algorithm = Algorithm(advantage=DR_GRPO, filters=(AsksWhoTrains(), OverlongMask()))
    assert algorithm.keep(rows).tolist() == [False, False]


class Lists(Part, slot="filter"):
    reads_credit: ClassVar[bool] = True

    def __call__(self, table: StepTable, credit: Credit) -> Any:
        return credit.values.tolist()


def test_what_a_credit_filter_of_a_users_own_returns_is_checked() -> None:
    with pytest.raises(ConfigError) as raised:
        Algorithm(advantage=DR_GRPO, filters=(Lists(),)).keep(RETURNS)
    assert str(raised.value) == (
        "the filter tests.unit.credit.test_small_credit:Lists returned a list of 3; expected a NumPy array of one "
        "boolean for each step (True = it may train)"
    )


def test_an_algorithm_without_such_filters_asks_for_no_credit() -> None:
    class Costly(Part, slot="estimator"):
        def __call__(self, table: StepTable) -> Credit:
            raise AssertionError("nobody needs the credit")

    assert Algorithm(advantage=Costly(), filters=(OverlongMask(),)).keep(
        table("task rollout step reward cut", ("q", 0, 0, 0.0, True))
    ).tolist() == [False]


def test_reports_name_the_dropped_steps_and_the_filters() -> None:
    algorithm = Algorithm(advantage=DR_GRPO, filters=(SmallCredit(min_size=1.5),))
    credit = algorithm.credit(RETURNS)
    assert find_steps_dropped_by_credit(algorithm, RETURNS, credit) == [
        DroppedStep(filter="SmallCredit(min_size=1.5)", task="t0", rollout=1, step=0, credit=-1.0)
    ]
    assert find_filters_that_drop(algorithm, RETURNS, credit, 1) == ["SmallCredit(min_size=1.5)"]
    assert find_filters_that_drop(algorithm, RETURNS, credit, 0) == []
    dapo = methods.dapo()
    solved = single_steps([1, 1])
    assert find_filters_that_drop(dapo, solved, dapo.credit(solved), 0) == ["ZeroSpread"]


def test_by_step_hands_credit_over_in_the_order_of_the_table() -> None:
    rows = table("task rollout step reward", ("q", 1, 0, 3.0), ("q", 0, 0, 1.0))
    credit = DR_GRPO(rows)
    assert credit.values.tolist() == [1, -1]
    assert credit.by_step().values.tolist() == [-1, 1]
    assert np.array_equal(credit.by_step().trace.values, credit.trace.values)
