"""Tokens by the node that predicts them, and the way back."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from groupwise.models.pack import Predictions, to_device


def test_the_worked_example() -> None:
    predictions = Predictions.of(np.array([1, 2, 1, 2]), np.array([3, 4, 3, 5]))
    assert (predictions.node.tolist(), predictions.row.tolist(), predictions.target.tolist()) == (
        [1, 2],
        [0, 0, 1, 1],
        [3, 3, 4, 5],
    )
    assert (predictions.back.tolist(), predictions.first.tolist(), predictions.others.tolist()) == (
        [0, 2, 1, 3],
        [0, 2],
        [1, 3],
    )
    assert predictions.starts.tolist() == [0, 2, 4]


@given(pairs=st.lists(st.tuples(st.integers(0, 9), st.integers(0, 5)), max_size=30))
def test_every_token_is_found_again_at_its_node(pairs: list[tuple[int, int]]) -> None:
    predictor, target = (np.array([pair[i] for pair in pairs], dtype=np.int64) for i in (0, 1))
    predictions = Predictions.of(predictor, target)
    assert predictions.node.tolist() == sorted(set(predictor.tolist()))
    assert predictions.node[predictions.row][predictions.back].tolist() == predictor.tolist()
    assert predictions.target[predictions.back].tolist() == target.tolist()
    assert predictions.row.tolist() == sorted(predictions.row.tolist())
    assert sorted([*predictions.first.tolist(), *predictions.others.tolist()]) == list(range(len(pairs)))
    assert predictions.row[predictions.first].tolist() == list(range(len(predictions.node)))
    assert predictions.starts.tolist() == [*predictions.first.tolist(), len(pairs)]


def test_it_moves_with_its_layout() -> None:
    moved = to_device(Predictions.of(np.array([1]), np.array([3])), "meta")
    assert {getattr(moved, name).device.type for name in ("node", "row", "target", "back", "first", "others")} == {
        "meta"
    }
    assert moved.starts.tolist() == [0, 1]
