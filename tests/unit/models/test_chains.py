"""Chains of a forest, each with the keys of its path."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from groupwise.models.attention import make_dense_mask
from groupwise.models.pack import Chains, pack
from tests.equivalence.rollouts import make_stepwise_samples


@given(window=st.sampled_from([None, 1, 2]), rollouts=st.integers(1, 8), steps=st.integers(1, 12))
def test_a_query_sees_of_its_runs_keys_what_the_mask_says(window: int | None, rollouts: int, steps: int) -> None:
    (placed,) = pack(
        make_stepwise_samples(rollouts=rollouts, steps=steps, window=window), token_budget=10_000, gate=0.0
    )
    chains = Chains.of(placed.position_ids[0].numpy())
    seen = make_dense_mask(placed.end)[0, 0].numpy()
    assert chains.queries[0] == chains.keys[0] == 0
    assert (chains.queries[-1], chains.keys[-1]) == (len(placed), len(chains.source))
    for (low, high), (first, last) in zip(
        pairwise(chains.queries.tolist()), pairwise(chains.keys.tolist()), strict=True
    ):
        for node in range(low, high):
            expected = np.flatnonzero(seen[node])
            assert chains.source[first : last - (high - 1 - node)].tolist() == expected.tolist()


def test_the_worked_example() -> None:
    chains = Chains.of(np.array([0, 1, 2, 2]))
    assert (chains.queries.tolist(), chains.keys.tolist()) == ([0, 3, 4], [0, 3, 6])
    assert (chains.max_queries, chains.max_keys) == (3, 3)
    assert chains.source.tolist() == [0, 1, 2, 0, 1, 3]
    assert chains.order.tolist() == [0, 3, 1, 4, 2, 5]
    assert chains.begins.tolist() == [0, 2, 4, 5]


def test_one_node() -> None:
    chains = Chains.of(np.array([0]))
    assert (chains.queries.tolist(), chains.keys.tolist(), chains.source.tolist()) == ([0, 1], [0, 1], [0])
