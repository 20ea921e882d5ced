"""Attention to shared prompts equals attention to their copies, whichever rows read which, mask or none."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn.functional import scaled_dot_product_attention
from transformers import Cache

from groupwise.engines.transformers_engine import (
    Places,
    RoomyLayer,
    SharedStates,
    Stored,
    share_prompts,
)


@st.composite
def readers(draw: st.DrawFn) -> list[int]:
    """The number of each row's prompt; every prompt has a row."""
    num_prompts = draw(st.integers(1, 4))
    more = draw(st.lists(st.integers(0, num_prompts - 1), max_size=6))
    return draw(st.permutations([*range(num_prompts), *more]))


def states(readers: list[int], *, heads: int = 2, own: int = 3, seed: int = 0) -> tuple[SharedStates, SharedStates]:
    generator = torch.Generator().manual_seed(seed)
    num_prompts = max(readers) + 1
    places = Places.of(torch.tensor(readers), num_prompts)

    def some() -> SharedStates:
        prompts = torch.randn(num_prompts, heads, 5, 4, generator=generator)
        return SharedStates.of(prompts, places, torch.randn(len(readers), heads, own, 4, generator=generator))

    return some(), some()


def query(num_rows: int, heads: int = 2, length: int = 1) -> torch.Tensor:
    return torch.randn(num_rows, heads, length, 4, generator=torch.Generator().manual_seed(9))


def test_rows_find_their_prompt_and_their_way_back() -> None:
    places = Places.of(torch.tensor([0, 0, 1]), 2)
    assert places.rows.tolist() == [[0, 1], [2, 2]]
    assert places.back.tolist() == [0, 1, 2]
    assert not places.is_in_order
    mixed = Places.of(torch.tensor([1, 0, 1, 0]), 2)
    assert mixed.rows.tolist() == [[1, 3], [0, 2]]
    assert mixed.back.tolist() == [2, 0, 3, 1]
    assert not mixed.is_in_order
    assert Places.of(torch.tensor([0, 0, 1, 1]), 2).is_in_order


@given(readers(), st.booleans())
def test_attention_equals_that_to_copies(rows: list[int], has_mask: bool) -> None:
    key, value = states(rows)
    mask = None
    if has_mask:
        mask = torch.ones(len(rows), 1, 1, 8, dtype=torch.bool)
        mask[:, :, :, :2] = (torch.arange(len(rows)) % 2 == 0)[:, None, None, None]
    asked = query(len(rows))
    attended = scaled_dot_product_attention(asked, key, value, attn_mask=mask)
    assert type(attended) is torch.Tensor
    expected = scaled_dot_product_attention(asked, key.write_out(), value.write_out(), attn_mask=mask)
    torch.testing.assert_close(attended, expected, atol=1e-6, rtol=1e-5)


def test_several_heads_may_read_the_same_keys() -> None:
    key, value = states([0, 1, 0])
    asked = query(3, heads=6)
    attended = scaled_dot_product_attention(asked, key, value, enable_gqa=True, scale=0.3)
    expected = scaled_dot_product_attention(asked, key.write_out(), value.write_out(), enable_gqa=True, scale=0.3)
    torch.testing.assert_close(attended, expected, atol=1e-6, rtol=1e-5)


def test_whatever_else_is_asked_sees_the_entries() -> None:
    key, value = states([1, 0, 1])
    assert key.shape == (3, 2, 8, 4)
    assert torch.equal(key[0, :, :5], key.prompts[1])
    assert torch.equal(key[2, :, 5:], key.own[2])
    causal = scaled_dot_product_attention(query(3, length=2), key, value, is_causal=True)
    expected = scaled_dot_product_attention(query(3, length=2), key.write_out(), value.write_out(), is_causal=True)
    assert torch.equal(causal, expected)


def test_a_layer_that_shares_holds_the_same_columns_as_one_that_copies() -> None:
    draw = torch.Generator().manual_seed(1)
    prompts, first, second = (torch.randn(n, 2, w, 4, generator=draw) for n, w in ((2, 5), (3, 1), (2, 1)))
    readers, kept = torch.tensor([1, 0, 1]), torch.tensor([0, 2])
    shared, copied = (Cache(layer_class_to_replicate=RoomyLayer) for _ in range(2))
    for cache in (shared, copied):
        cache.update(prompts, -prompts, 0)
    share_prompts(shared, readers)
    copied.batch_select_indices(readers)
    for cache in (shared, copied):
        cache.update(first, -first, 0)
        cache.batch_select_indices(kept)  # the prompt that nobody reads any more goes too
    keys, values = shared.update(second, -second, 0)
    expected, _ = copied.update(second, -second, 0)
    assert shared.get_seq_length() == copied.get_seq_length() == 7
    assert isinstance(keys, SharedStates)
    assert len(keys.prompts) == 1
    assert torch.equal(keys.write_out(), expected)
    assert torch.equal(values.write_out(), -expected)
    layer = shared.layers[0]
    assert isinstance(layer, RoomyLayer)
    stored, _ = Stored(layer.stored, layer.prompts).select_rows(torch.tensor([1]))
    assert torch.equal(stored[:, :, :7], expected[1:])
