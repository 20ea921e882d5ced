"""Which prompts are read together: any while they are few, those of like length when they are many."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from groupwise.engines.static_cache.cache import LaneCache, UnreadRow
from groupwise.engines.static_cache.passes import SLACK, WASTE, Prefill

LIGHT = 8192
BUDGET = 4 * LIGHT


def batches(lengths: list[int], budget: int = BUDGET) -> list[list[int]]:
    cache = LaneCache.empty([(1, 1, 1)], lanes=1, width=1, dtype=torch.float32, device=torch.device("cpu"))
    rows = [UnreadRow((0,) * length, 0, (0,)) for length in lengths]
    prefill = Prefill(None, cache, batch_tokens=budget, light_tokens=LIGHT)
    return [[len(row.ids) for row in batch] for batch in prefill._cut_batches(rows)]


@given(lengths=st.lists(st.integers(1, 3 * LIGHT), max_size=60))
def test_every_prompt_is_in_one_batch_which_is_within_the_budget_or_alone(lengths: list[int]) -> None:
    read_together = batches(lengths)
    assert sorted(length for batch in read_together for length in batch) == sorted(lengths)
    for batch in read_together:
        tokens = len(batch) * max(batch)
        assert tokens <= BUDGET or len(batch) == 1
        assert tokens <= LIGHT or max(batch) <= WASTE * min(batch) + SLACK


@pytest.mark.parametrize(
    ("lengths", "expected"),
    [
        ([20, 700, 90, 5], [[5, 20, 90, 700]]),
        ([4000, 1000, 1000], [[1000, 1000], [4000]]),
        ([LIGHT, LIGHT, LIGHT + 1], [[LIGHT, LIGHT, LIGHT + 1]]),
    ],
)
def test_a_few_tokens_are_read_at_once_whatever_their_lengths(lengths: list[int], expected: list[list[int]]) -> None:
    assert batches(lengths) == expected


def test_the_budget_comes_first() -> None:
    assert batches([30, 30, 30, 30], budget=64) == [[30, 30], [30, 30]]
