"""What a loss sees: columns of equal length, of which only the tokens that train are ever read."""

from __future__ import annotations

import dataclasses
import math

import pytest
import torch

from groupwise import RecordError
from groupwise.losses import ENTROPY, OLD_LOGP, REFERENCE_LOGP
from tests.unit.losses.token_rows import columns, numbers


def test_a_column_of_another_length_is_named() -> None:
    with pytest.raises(RecordError) as caught:
        dataclasses.replace(columns([-1.0, -2.0]), advantage=numbers([1.0]))
    assert str(caught.value) == (
        "column 'advantage' has shape (1,), but logp has (2,); every column needs one entry per token"
    )


def test_padded_columns_are_refused() -> None:
    with pytest.raises(RecordError, match=r"column 'logp' has shape \(1, 2\)"):
        dataclasses.replace(columns([-1.0]), logp=torch.zeros(1, 2))


def test_a_mask_may_be_numbers_but_not_weights() -> None:
    two = columns([-1.0, -2.0])
    kept = dataclasses.replace(two, mask=torch.tensor([0.0, 1.0])).select_trained()
    assert kept.logp.tolist() == [-2.0]
    with pytest.raises(RecordError) as caught:
        dataclasses.replace(two, mask=torch.tensor([0.5, 1.0]))
    assert str(caught.value) == ("column 'mask' has a number that is neither 0 nor 1; put weights into the advantage")


@pytest.mark.parametrize(
    ("need", "column"), [(OLD_LOGP, "logp_old"), (REFERENCE_LOGP, "logp_ref"), (ENTROPY, "entropy")]
)
def test_a_missing_column_says_how_to_supply_it(need: str, column: str) -> None:
    with pytest.raises(RecordError) as caught:
        dataclasses.replace(columns([-1.0]), **{column: None}).require(need)
    assert str(caught.value) == (
        f"the loss needs {need}, but column {column!r} is missing; pass it, or leave out the part "
        "that reads it (a penalty of weight 0 reads nothing)"
    )


def test_only_tokens_that_train_are_left_with_all_their_columns() -> None:
    kept = columns(
        [-1.0, math.nan, -3.0],
        old=[-1.5, math.inf, -3.5],
        behaviour=[-1.25, math.nan, -3.25],
        ref=[-2.0, math.nan, -4.0],
        entropy=[0.5, math.nan, 0.25],
        advantage=[1.0, math.nan, -1.0],
        mask=[True, False, True],
        sample=[0, 0, 4],
        step=[0, 0, 7],
        trajectory=[2, 2, 3],
        off_policy=[False, True, True],
        group=[5, 5, 6],
        named={"pass_rate": [0.25, math.nan, 0.75]},
        channels={"tempo": [-1.0, math.inf, 2.0]},
    ).select_trained()
    assert {name: column.tolist() for name, column in kept.list_columns()} == {
        "logp": [-1.0, -3.0],
        "logp_old": [-1.5, -3.25],  # of an off-policy token the one that was sampled
        "logp_behaviour": [-1.25, -3.25],
        "logp_ref": [-2.0, -4.0],
        "entropy": [0.5, 0.25],
        "advantage": [1.0, -1.0],
        "mask": [True, True],
        "sample": [0, 4],
        "step": [0, 7],
        "trajectory": [2, 3],
        "off_policy": [False, True],
        "group": [5, 6],
        "pass_rate": [0.25, 0.75],
        "tempo": [-1.0, 2.0],
    }
    assert list(kept.named) == ["pass_rate"]
    assert list(kept.channels) == ["tempo"]


def test_what_stands_by_name_is_found_by_name_or_said_to_be_missing() -> None:
    given = columns([-1.0], named={"pass_rate": [0.5]}, channels={"tempo": [2.0]})
    assert given.column("pass_rate").tolist() == [0.5]
    assert given.channel("tempo").tolist() == [2.0]
    with pytest.raises(RecordError) as caught:
        given.column("pass_rat")
    assert str(caught.value) == (
        "the loss reads the column 'pass_rat', which it did not get; declare it in `columns` of the loss. "
        "did you mean 'pass_rate'? Valid: pass_rate"
    )
    with pytest.raises(RecordError, match=r"the channel 'speed', .* declare it in `channels` of the loss"):
        given.channel("speed")


@pytest.mark.parametrize("where", ["named", "channels"])
def test_a_column_by_name_needs_one_entry_a_token_too(where: str) -> None:
    with pytest.raises(RecordError, match=r"^column 'short' has shape \(1,\), but logp has \(2,\); every column"):
        columns([-1.0, -1.0], **{where: {"short": [1.0]}})


def test_what_is_given_by_name_carries_no_gradient_and_the_precision_of_logp() -> None:
    own = columns([-1.0, -2.0])
    kept = dataclasses.replace(own, named={"x": own.logp.float()}, channels={"y": own.logp}).select_trained()
    assert not kept.column("x").requires_grad
    assert not kept.channel("y").requires_grad
    assert kept.column("x").dtype == torch.float64
    assert kept.column("x").tolist() == kept.channel("y").tolist() == [-1.0, -2.0]


def test_gradients_run_through_logp_and_entropy_alone() -> None:
    """A caller who hands in logp itself as the old log-prob still gets a gradient through the ratio."""
    own = columns([-1.0, -2.0], entropy=[1.0, 1.0])
    kept = dataclasses.replace(own, logp_old=own.logp, logp_ref=own.logp, logp_behaviour=own.logp).select_trained()
    assert kept.logp.requires_grad
    assert kept.entropy is not None
    assert kept.entropy.requires_grad
    assert not any(column.requires_grad for column in (kept.require(OLD_LOGP), kept.require(REFERENCE_LOGP)))
    assert not kept.logp_behaviour.requires_grad


def test_half_precision_is_raised_to_float32_and_double_is_kept() -> None:
    two = columns([-1.0, -2.0], ref=[-1.0, -1.0], entropy=[1.0, 2.0])
    half = dataclasses.replace(two, logp=two.logp.bfloat16())
    for before, expected in ((half, torch.float32), (two, torch.float64)):
        kept = before.select_trained()
        dtypes = {getattr(kept, name).dtype for name in ("logp", "logp_old", "logp_ref", "entropy", "advantage")}
        assert dtypes == {expected}


def test_a_step_is_the_pair_of_trajectory_and_index() -> None:
    tokens = columns([0.0] * 5, trajectory=[0, 0, 1, 1, 1], step=[0, 1, 0, 0, 1], sample=[0, 1, 2, 3, 4])
    counts = {unit: tokens.units(unit).size(tokens.logp).tolist() for unit in ("token", "sample", "step", "trajectory")}
    assert counts == {
        "token": [1.0] * 5,
        "sample": [1.0] * 5,
        "step": [1.0, 1.0, 2.0, 2.0, 1.0],
        "trajectory": [2.0, 2.0, 3.0, 3.0, 3.0],
    }


def test_steps_of_different_trajectories_are_never_one_unit() -> None:
    """Steps 0 and 1 of three trajectories: six units of one token each."""
    tokens = columns([0.0] * 6, trajectory=[0, 0, 1, 1, 2, 2], step=[0, 1, 0, 1, 0, 1], sample=range(6))
    units = tokens.units("step")
    assert units.num == 6
    assert units.sum(numbers([1, 2, 3, 4, 5, 6])).tolist() == [1, 2, 3, 4, 5, 6]


def test_units_hand_each_token_the_sum_and_mean_of_its_unit() -> None:
    units = columns([0.0] * 4, sample=[7, 3, 7, 3]).units("sample")
    assert units.num == 2
    assert units.sum(numbers([1, 2, 3, 6])).tolist() == [4, 8, 4, 8]
    assert units.mean(numbers([1, 2, 3, 6])).tolist() == [2, 4, 2, 4]
