"""Block masks from the interval rule, as far as a machine without a GPU can tell: they are read back and compared."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn.attention.flex_attention import create_block_mask

from groupwise.models import attention_gpu as block_masks
from groupwise.models.attention import make_dense_mask
from groupwise.models.attention_gpu import (
    BLOCK,
    MAX_COPIES,
    STRETCH,
    TreeKeys,
    choose_stretch,
    fill_last_block,
    find_tree_keys,
    make_inputs,
)
from groupwise.models.pack import Pack, pack
from tests.equivalence.rollouts import make_stepwise_samples


def _one_pack(window: int | None, rollouts: int, steps: int = 6) -> Pack:
    (packed,) = pack(
        make_stepwise_samples(rollouts=rollouts, steps=steps, window=window), token_budget=10_000, gate=0.0
    )
    return packed


def _tables(mask: object) -> tuple[torch.Tensor, torch.Tensor]:
    """Blocks that are computed with the mask, and those that are computed without."""
    tables = []
    for num, listed in (
        (mask.kv_num_blocks, mask.kv_indices),  # type: ignore[attr-defined]
        (mask.full_kv_num_blocks, mask.full_kv_indices),  # type: ignore[attr-defined]
    ):
        table = torch.zeros(listed.shape[-2:], dtype=torch.bool)
        for row, count in enumerate(num[0, 0].tolist()):
            table[row, listed[0, 0, row, :count].long()] = True
        tables.append(table)
    return tables[0], tables[1]


def _see_by_mask(placed: Pack) -> torch.Tensor:
    """Which node sees which, padding included."""
    length = -(-len(placed) // BLOCK) * BLOCK
    seen = torch.eye(length, dtype=torch.bool)
    seen[: len(placed), : len(placed)] = make_dense_mask(placed.end)[0, 0]
    return seen


def _by_block(table: torch.Tensor) -> torch.Tensor:
    """The entries of each block of queries and keys."""
    rows, columns = table.shape
    return table.view(rows // BLOCK, BLOCK, columns // BLOCK, BLOCK).transpose(1, 2).flatten(2)


def _entries(keys: TreeKeys, length: int) -> torch.Tensor:
    """What FlexAttention computes: the mask function inside partial blocks, everything inside full ones (L, K)."""
    partial, full = (table.repeat_interleave(BLOCK, 0).repeat_interleave(BLOCK, 1) for table in _tables(keys.mask))
    query, key = torch.arange(length)[:, None], torch.arange(full.shape[1])[None, :]
    return full | (partial & keys.mask.mask_mod(0, 0, query, key))


@settings(max_examples=15, deadline=None)
@given(window=st.sampled_from([None, 2]), rollouts=st.integers(1, 8), steps=st.integers(1, 20))
def test_blocks_are_those_that_the_dense_mask_has(window: int | None, rollouts: int, steps: int) -> None:
    placed = _one_pack(window, rollouts, steps)
    seen = _see_by_mask(placed)
    mask = find_tree_keys(fill_last_block(placed.end), stretch=len(seen)).mask
    partial, full = _tables(mask)
    assert torch.equal(full, _by_block(seen).all(-1))
    assert torch.equal(partial, _by_block(seen).any(-1) & ~_by_block(seen).all(-1))
    node = torch.arange(len(seen))
    assert torch.equal(mask.mask_mod(0, 0, node[:, None], node[None, :]), seen)


@pytest.mark.more
@settings(max_examples=15, deadline=None)
@given(
    window=st.sampled_from([None, 2]),
    rollouts=st.integers(2, 8),
    steps=st.integers(8, 20),
    blocks=st.sampled_from([1, 2, 3]),
)
def test_stretches_see_through_copies_what_nodes_see(
    window: int | None, rollouts: int, steps: int, blocks: int
) -> None:
    placed = _one_pack(window, rollouts, steps)
    seen = _see_by_mask(placed)
    keys = find_tree_keys(fill_last_block(placed.end), stretch=blocks * BLOCK)
    entries = _entries(keys, len(seen))
    if keys.source is None:
        assert len(seen) <= blocks * BLOCK
        keys_of = torch.arange(len(seen))
    else:
        keys_of = keys.source
    by_node = torch.zeros(len(seen), len(seen), dtype=torch.int64)
    by_node.index_add_(1, keys_of, entries.long())
    assert torch.equal(by_node, seen.long())  # each node it sees, once
    waiting = entries.view(len(seen) // BLOCK, BLOCK, -1).any(1).view(len(seen) // BLOCK, -1, BLOCK).any(-1).sum(0)
    assert int(waiting.max()) <= blocks or keys.source is None


def test_the_blocks_of_the_backward_pass_are_those_of_torch() -> None:
    placed = _one_pack(None, 3, steps=20)
    length = len(placed) // BLOCK * BLOCK
    mask = find_tree_keys(placed.end[:length], stretch=length).mask
    expected = create_block_mask(mask.mask_mod, B=1, H=1, Q_LEN=length, KV_LEN=length, device="cpu")
    for name in ("kv_num_blocks", "full_kv_num_blocks", "q_num_blocks", "full_q_num_blocks"):
        assert torch.equal(getattr(mask, name), getattr(expected, name)), name
    assert mask.full_kv_num_blocks.sum() > 0


def test_the_worked_example_of_stretches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(block_masks, "BLOCK", 2)
    keys = find_tree_keys(torch.tensor([6, 6, 4, 4, 6, 6]), stretch=2)
    assert keys.source is not None
    assert keys.source.tolist() == [0, 1, 0, 1, 2, 3, 0, 1, 4, 5]
    full = torch.zeros(3, 5, dtype=torch.bool)
    full[[1, 2], [1, 3]] = True  # the first two nodes, for either branch
    partial = torch.zeros(3, 5, dtype=torch.bool)
    partial[[0, 1, 2], [0, 2, 4]] = True  # what a stretch sees of itself
    assert [table.tolist() for table in _tables(keys.mask)] == [partial.tolist(), full.tolist()]


def test_padding_sees_itself_alone_and_is_nobodys() -> None:
    placed = _one_pack(2, 3)
    asked = make_inputs(placed, torch.float32, 8)
    missing = -len(placed) % BLOCK
    assert missing
    assert asked["input_ids"].shape == asked["position_ids"].shape == (1, len(placed) + missing)
    node = torch.arange(len(placed), len(placed) + missing)
    sees = asked["attention_mask"].mask_mod(0, 0, node[:, None], torch.arange(len(placed) + missing)[None, :])
    assert torch.equal(sees.nonzero()[:, 1], node)


def test_a_pack_has_one_mask() -> None:
    placed = _one_pack(2, 3)
    assert (
        make_inputs(placed, torch.float32, 8)["attention_mask"]
        is make_inputs(placed, torch.float32, 8)["attention_mask"]
    )


def test_a_forest_with_one_chain_is_causal() -> None:
    mask = find_tree_keys(torch.full((3 * BLOCK,), 3 * BLOCK)).mask
    partial, full = _tables(mask)
    assert torch.equal(partial, torch.eye(3, dtype=torch.bool))
    assert torch.equal(full, torch.ones(3, 3, dtype=torch.bool).tril(-1))


def test_a_whole_block_of_short_trees_sees_nothing_before_it() -> None:
    end = torch.arange(2 * BLOCK) // 2 * 2 + 2  # pairs
    partial, full = _tables(find_tree_keys(end).mask)
    assert torch.equal(partial, torch.eye(2, dtype=torch.bool))
    assert not full.any()


def test_keys_of_a_long_path_grow_with_its_length_and_not_with_its_square() -> None:
    lengths = [64 * STRETCH, 256 * STRETCH]
    for length in lengths:
        end = torch.full((length,), length)
        stretch = choose_stretch(end)
        copied = sum(range(0, length, stretch))
        assert length + copied <= MAX_COPIES * length < length + sum(range(0, length, stretch // 2))
    assert choose_stretch(torch.full((8 * STRETCH,), 8 * STRETCH)) == STRETCH
    rows = torch.arange(64 * STRETCH) // 512 * 512 + 512  # many short paths
    assert choose_stretch(rows) == STRETCH


def test_a_long_path_in_longer_stretches_is_seen_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(block_masks, "STRETCH", BLOCK)
    length = 24 * BLOCK
    keys = find_tree_keys(torch.full((length,), length))
    assert keys.source is not None
    assert len(keys.source) <= MAX_COPIES * length
    by_node = torch.zeros(length, length, dtype=torch.int64).index_add_(1, keys.source, _entries(keys, length).long())
    assert torch.equal(by_node, torch.ones(length, length, dtype=torch.int64).tril())
