"""Runs of a forest, each with the keys of its path."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from groupwise.batching import pack
from groupwise.batching.chains import Runs
from groupwise.models.attention.masks import dense_mask
from tests.equivalence.rollouts import stepwise


@settings(max_examples=30, deadline=None)
@given(window=st.sampled_from([None, 1, 2]), attempts=st.integers(1, 8), steps=st.integers(1, 12))
def test_a_query_sees_of_its_runs_keys_what_the_mask_says(window: int | None, attempts: int, steps: int) -> None:
    (placed,) = pack(stepwise(attempts=attempts, steps=steps, window=window), token_budget=10_000, gate=0.0)
    runs = Runs.of(placed.position_ids[0].numpy())
    seen = dense_mask(placed)[0, 0].numpy()
    assert runs.queries[0] == runs.keys[0] == 0
    assert (runs.queries[-1], runs.keys[-1]) == (len(placed), len(runs.source))
    for (low, high), (first, last) in zip(pairwise(runs.queries.tolist()), pairwise(runs.keys.tolist()), strict=True):
        for node in range(low, high):
            expected = np.flatnonzero(seen[node])
            assert runs.source[first : last - (high - 1 - node)].tolist() == expected.tolist()


def test_the_worked_example() -> None:
    runs = Runs.of(np.array([0, 1, 2, 2]))
    assert (runs.queries.tolist(), runs.keys.tolist()) == ([0, 3, 4], [0, 3, 6])
    assert (runs.most_queries, runs.most_keys) == (3, 3)
    assert runs.source.tolist() == [0, 1, 2, 0, 1, 3]
    assert runs.order.tolist() == [0, 3, 1, 4, 2, 5]
    assert runs.begins.tolist() == [0, 2, 4, 5]


def test_one_node() -> None:
    runs = Runs.of(np.array([0]))
    assert (runs.queries.tolist(), runs.keys.tolist(), runs.source.tolist()) == ([0, 1], [0, 1], [0])
