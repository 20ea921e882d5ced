"""Aggregates: the example of numbers, Aggregation, and rollouts of different lengths."""

from __future__ import annotations

import dataclasses

import pytest

from groupwise import ConfigError, RecordError
from groupwise.data.samples import Totals
from groupwise.losses import ConstantLength, SequenceMean, SequenceSum, StepMean, TokenMean, TrajectoryMean
from groupwise.losses.slots import Aggregate
from tests.unit.losses.token_rows import columns, number, numbers, totals

SHORT_AND_LONG = columns([0.0] * 6, sample=[0, 0, 1, 1, 1, 1])
LOSSES = (1.0, 1.0, 2.0, 2.0, 2.0, 2.0)


def weigh_tokens(aggregate: Aggregate, counted: Totals) -> tuple[float, list[float]]:
    """The number, and how much each token's loss counts in it."""
    loss_T = numbers(LOSSES).requires_grad_()
    value = aggregate(loss_T, SHORT_AND_LONG, counted)
    value.backward()
    assert loss_T.grad is not None
    return number(value), loss_T.grad.tolist()


@pytest.mark.parametrize(
    ("aggregate", "value", "short", "long"),
    [
        (TokenMean(), 1.666667, 1 / 6, 1 / 6),
        (SequenceMean(), 1.5, 1 / 4, 1 / 8),
        (SequenceSum(), 5.0, 1 / 2, 1 / 2),
        (ConstantLength(), 0.625, 1 / 16, 1 / 16),
        (ConstantLength(per_sequence=False), 1.25, 1 / 8, 1 / 8),
        (ConstantLength(length=10), 0.5, 1 / 20, 1 / 20),
        (StepMean(), 1.5, 1 / 4, 1 / 8),
        (TrajectoryMean(), 1.666667, 1 / 6, 1 / 6),
        (TrajectoryMean(within="step"), 1.5, 1 / 4, 1 / 8),
    ],
    ids=repr,
)
def test_the_vector_that_was_worked_by_hand(aggregate: Aggregate, value: float, short: float, long: float) -> None:
    """Losses [1, 1] and [2, 2, 2, 2], L_max = 8; here both are steps of one rollout."""
    total, weights = weigh_tokens(aggregate, totals(2, 4, max_tokens=8))
    assert total == pytest.approx(value, abs=1e-6)
    assert weights == pytest.approx([short] * 2 + [long] * 4)


def test_denominators_are_those_that_are_handed_in() -> None:
    """The same tokens as part of an update twice as large count half."""
    for aggregate in (TokenMean(), SequenceMean(), SequenceSum(), ConstantLength(), StepMean()):
        alone, _ = weigh_tokens(aggregate, totals(2, 4))
        part, _ = weigh_tokens(aggregate, totals(2, 4, 2, 4))
        assert part == pytest.approx(alone / 2)


def test_the_only_token_of_an_update_counts_whole() -> None:
    only = columns([0.0])
    for aggregate in (TokenMean(), SequenceMean(), SequenceSum(), StepMean(), TrajectoryMean()):
        assert number(aggregate(numbers([3.0]), only, totals(1))) == 3.0
    assert number(ConstantLength(length=4)(numbers([3.0]), only, totals(1))) == 0.75


def test_a_trajectory_counts_once_however_many_steps_it_took() -> None:
    """Rollout 0 has one step of 2 tokens; rollout 1 has steps of 1 and 3 tokens, in one micro-batch or two."""
    counted = Totals.count(tokens=[2, 1, 3], trajectory=[0, 1, 1], step=[0, 0, 1], group=[0, 0, 0], max_tokens=8)
    tokens = columns([0.0] * 6, sample=[0, 0, 1, 2, 2, 2], step=[0, 0, 0, 1, 1, 1], trajectory=[0, 0, 1, 1, 1, 1])
    loss_T = numbers([4.0, 2.0, 6.0, 1.0, 2.0, 3.0])
    assert number(TrajectoryMean()(loss_T, tokens, counted)) == pytest.approx((3 + 3) / 2)
    assert number(TrajectoryMean(within="step")(loss_T, tokens, counted)) == pytest.approx((3 + (6 + 2) / 2) / 2)
    assert number(StepMean()(loss_T, tokens, counted)) == pytest.approx((3 + 6 + 2) / 3)
    second = columns([0.0] * 3, sample=[2, 2, 2], step=[1, 1, 1], trajectory=[1, 1, 1])
    assert number(TrajectoryMean()(loss_T[3:], second, counted)) == pytest.approx(6 / 4 / 2)
    assert number(TrajectoryMean(within="step")(loss_T[3:], second, counted)) == pytest.approx(2 / 2 / 2)


def test_a_step_that_was_cut_into_samples_counts_once() -> None:
    """Losses 1, 2, 6 of one step, cut into samples of 2 tokens and 1."""
    tokens = columns([0.0] * 3, sample=[0, 0, 1], step=[0, 0, 0])
    counted = Totals.count(tokens=[2, 1], trajectory=[0, 0], step=[0, 0], group=[0, 0], max_tokens=8)
    loss_T = numbers([1.0, 2.0, 6.0])
    assert number(StepMean()(loss_T, tokens, counted)) == pytest.approx(3.0)
    assert number(SequenceMean()(loss_T, tokens, counted)) == pytest.approx((1.5 + 6) / 2)


def test_trajectories_that_were_not_counted_are_an_error() -> None:
    uncounted = dataclasses.replace(totals(2, 4), trajectory_tokens=())
    with pytest.raises(RecordError) as caught:
        weigh_tokens(TrajectoryMean(), uncounted)
    assert str(caught.value) == (
        "trajectory 0 is not among the 0 of the totals; count the totals over all samples of the update "
        "(Totals.count) and number trajectories from 0"
    )


def test_a_constant_length_is_positive() -> None:
    with pytest.raises(ConfigError) as caught:
        ConstantLength(length=0)
    assert str(caught.value) == "ConstantLength: length: expected a number greater than 0, found 0"
