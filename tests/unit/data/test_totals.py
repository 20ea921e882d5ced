"""Totals: counted over the whole update, and only what trains."""

from __future__ import annotations

import numpy as np
import pytest

from groupwise import RecordError
from groupwise.data.samples import Pair, Totals


def test_every_kind_is_counted() -> None:
    """Trajectory 0 (group 3): steps of 2 and 4 tokens. Trajectory 2 (group 5): a step cut into samples of 1 and 3."""
    totals = Totals.count(
        tokens=[2, 4, 1, 3], trajectory=[0, 0, 2, 2], step=[0, 1, 1, 1], group=[3, 3, 5, 5], max_tokens=8
    )
    assert totals == Totals(
        tokens=10,
        samples=4,
        steps=3,
        trajectories=2,
        groups=2,
        max_tokens=8,
        trajectory_tokens=(6, 0, 4),
        trajectory_steps=(2, 0, 1),
    )


def test_what_does_not_train_leaves_every_denominator() -> None:
    """The third sample was dropped by a filter; with it go its step, its trajectory and its group."""
    with_dropped = Totals.count(tokens=[2, 4, 0], trajectory=[0, 0, 1], step=[0, 1, 0], group=[0, 0, 1], max_tokens=8)
    without = Totals.count(tokens=[2, 4], trajectory=[0, 0], step=[0, 1], group=[0, 0], max_tokens=8)
    assert with_dropped.trajectory_tokens == (6, 0)
    assert with_dropped.trajectory_steps == (2, 0)
    names = ("tokens", "samples", "steps", "trajectories", "groups", "max_tokens")
    assert [getattr(with_dropped, name) for name in names] == [getattr(without, name) for name in names]


def test_steps_of_different_trajectories_are_different_steps() -> None:
    assert Totals.count(tokens=[1, 1], trajectory=[0, 1], step=[0, 0], group=[0, 0], max_tokens=8).steps == 2


def test_arrays_are_counted_like_lists_and_give_plain_integers() -> None:
    arrays = {name: np.array([1, 2]) for name in ("tokens", "trajectory", "step", "group")}
    totals = Totals.count(**arrays, max_tokens=8)
    assert totals == Totals.count(tokens=[1, 2], trajectory=[1, 2], step=[1, 2], group=[1, 2], max_tokens=8)
    assert {type(number) for number in (totals.tokens, totals.samples, *totals.trajectory_tokens)} == {int}


def test_an_update_of_nothing() -> None:
    assert Totals.count(tokens=[], trajectory=[], step=[], group=[], max_tokens=8) == Totals(
        tokens=0, samples=0, steps=0, trajectories=0, groups=0, max_tokens=8
    )


def test_only_pairs_of_which_both_train_are_counted() -> None:
    """Trajectory 1 does not train, and there is no trajectory 7: of four pairs two are left."""
    pairs = [Pair(0, 2, 0.5), Pair(1, 0), Pair(2, 1), Pair(7, 0), Pair(2, 3, 2.0)]
    totals = Totals.count(
        tokens=[2, 0, 3, 1],
        trajectory=[0, 1, 2, 3],
        step=[0, 0, 0, 0],
        group=[0, 0, 0, 0],
        max_tokens=4,
        pairs=pairs,
    )
    assert totals.pair_members == (Pair(0, 2, 0.5), Pair(2, 3, 2.0))
    assert totals.pairs == 2
    assert totals.pair_weight == 2.5


def test_an_update_without_pairs_has_none() -> None:
    totals = Totals.count(tokens=[2], trajectory=[0], step=[0], group=[0], max_tokens=4)
    assert (totals.pairs, totals.pair_weight) == (0, 0.0)


def test_columns_of_different_lengths_are_refused() -> None:
    with pytest.raises(RecordError) as caught:
        Totals.count(tokens=[1, 2], trajectory=[0], step=[0, 0], group=[0, 0], max_tokens=8)
    assert str(caught.value) == (
        "column 'trajectory' has 1 rows, but column 'tokens' has 2; every column needs one entry per row"
    )


def test_negative_counts_are_refused() -> None:
    with pytest.raises(RecordError) as caught:
        Totals.count(tokens=[1, -2], trajectory=[0, 0], step=[0, 0], group=[0, 0], max_tokens=8)
    assert str(caught.value) == "column 'tokens', row 1: found -2; count from 0 upwards"
