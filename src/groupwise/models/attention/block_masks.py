"""Attention of a pack on a GPU in any precision: FlexAttention with block masks from the interval rule.

In pre-order, what a stretch of neighbouring nodes sees outside itself are the ancestors of its first node (see
`on_cpu`). So queries are taken in *stretches*, each with keys of its own: that path, then its own nodes. Which
blocks of a stretch's keys a block of its queries sees follows from two numbers a block:

    seen: max end[k] > first q          full: min end[k] > last q

and that is FlexAttention's block mask, whatever the forest; no pair of tokens is looked at. Stretches are there for the
backward pass, in which a block of keys waits for all queries that see it: those of a shared prompt are every query of a
pack. With keys of its own a stretch's prompt is waited for by the stretch alone, and autograd adds up the copies.

Axes: L nodes, K keys, A attention heads, D their width; a table is blocks of queries by blocks of keys.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch.nn.attention.flex_attention import BlockMask, flex_attention
from torch.nn.functional import pad

BLOCK = 128
"""Nodes of a block; FlexAttention's backward pass wants whole ones."""
STRETCH = 1024
"""Nodes of a stretch: with fewer, paths are copied more often; with more, the backward pass waits longer for them."""
MAX_COPIES = 8
"""Keys for each node that stretches may come to: on long paths, longer stretches, or copies would be the square of the
length."""
NOBODY = -1
MAX_COMPILED = 64
"""Variants of a compiled function that may exist: beyond torch's own limit of 8 it falls back to a far slower one."""


@dataclass(frozen=True, eq=False, kw_only=True)
class TreeKeys:
    """Which keys the queries of a pack see.

    Worked example: with blocks of 2 and stretches of one block, the nodes 0-1-2-3 and 0-1-4-5 have the keys [0, 1],
    [0, 1, 2, 3] and [0, 1, 4, 5]: source [0, 1, 0, 1, 2, 3, 0, 1, 4, 5].
    """

    mask: BlockMask
    """The blocks of keys that each block of queries sees."""
    source: torch.Tensor | None
    """Node of each key (K); None = the nodes as they come."""


def choose_stretch(end: torch.Tensor) -> int:
    """How many nodes a stretch should have where nodes have the given ends (L): `STRETCH`, or more on long paths."""
    stretch = STRETCH
    while stretch < len(end) and len(end) + int(_find_ancestors(end, stretch).sum()) > MAX_COPIES * len(end):
        stretch *= 2
    return stretch


def find_tree_keys(end: torch.Tensor, *, stretch: int | None = None) -> TreeKeys:
    """The keys of nodes with the given ends (L), a multiple of `BLOCK` of them, in stretches of so many nodes.

    None = as many as `choose_stretch` chooses.
    """
    stretch = choose_stretch(end) if stretch is None else stretch
    node = torch.arange(len(end), device=end.device)
    if len(end) <= stretch:
        return TreeKeys(mask=make_block_mask(end, node, torch.zeros_like(node[::BLOCK])), source=None)
    first, is_ancestor = node[::stretch], _find_ancestors(end, stretch)
    keys, owner = [], []
    for number, (begin, path) in enumerate(zip(first.tolist(), is_ancestor, strict=True)):
        ancestors = torch.nonzero(path)[:, 0]
        own = node[begin : begin + stretch]
        keys += [ancestors, ancestors.new_full((-len(ancestors) % BLOCK,), NOBODY), own]
        owner += [number] * (-(-len(ancestors) // BLOCK) + len(own) // BLOCK)
    source = torch.cat(keys)
    mask = make_block_mask(end, source, torch.tensor(owner, device=end.device), stretch=stretch)
    return TreeKeys(mask=mask, source=source.clamp(min=0))


def _find_ancestors(end: torch.Tensor, stretch: int) -> torch.Tensor:
    """Which nodes are ancestors of the first node of each stretch (stretches, L)."""
    node = torch.arange(len(end), device=end.device)
    first = node[::stretch, None]
    return (node[None, :] < first) & (end[None, :] > first)


def make_block_mask(
    end: torch.Tensor, source: torch.Tensor, owner: torch.Tensor, *, stretch: int | None = None
) -> BlockMask:
    """The mask of nodes with the given ends (L) over keys (K).

    Args:
        end: One past the last node of each node's subtree.
        source: Node of each key; `NOBODY` at padding, which no query sees.
        owner: Stretch of each block of keys.
        stretch: Nodes of a stretch; None = all are one.
    """
    is_padding = source == NOBODY
    nodes = source.masked_fill(is_padding, len(end)).to(torch.int32)
    ends = torch.where(is_padding, 0, end[source]).to(torch.int32)
    block = torch.arange(len(end) // BLOCK, device=end.device)[:, None]
    first, last = block * BLOCK, (block + 1) * BLOCK - 1
    lowest, highest = nodes.view(-1, BLOCK).aminmax(dim=1)
    nearest, farthest = ends.view(-1, BLOCK).aminmax(dim=1)
    is_mine = owner[None, :] == first // (stretch or len(end))
    is_seen = is_mine & (lowest[None, :] <= last) & (farthest[None, :] > first)
    is_full = is_mine & (highest[None, :] <= first) & (nearest[None, :] > last)

    def sees(batch: Any, head: Any, query: torch.Tensor, key: torch.Tensor) -> torch.Tensor:
        return (nodes[key] <= query) & (query < ends[key])

    return BlockMask.from_kv_blocks(
        *_list_blocks(is_seen & ~is_full),
        *_list_blocks(is_full),
        BLOCK_SIZE=BLOCK,
        mask_mod=sees,
        seq_lengths=(len(end), len(source)),
    )


def _list_blocks(table_KK: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """How many blocks of keys each block of queries has, and which: those first."""
    order = torch.argsort(table_KK.to(torch.int8), dim=1, descending=True, stable=True)
    return table_KK.sum(1, dtype=torch.int32)[None, None], order.to(torch.int32)[None, None]


def make_block_inputs(input_ids: torch.Tensor, position_ids: torch.Tensor, keys: TreeKeys) -> dict[str, Any]:
    """Tokens and positions (1, L) in whole blocks, and how attention finds its way over them."""
    missing = -input_ids.shape[1] % BLOCK
    return {
        "input_ids": pad(input_ids, (0, missing)),
        "position_ids": pad(position_ids, (0, missing)),
        "attention_mask": keys.mask,
        **({} if keys.source is None else {"key_source": keys.source}),
    }


def fill_last_block(end: torch.Tensor) -> torch.Tensor:
    """Ends of nodes (L) and of nodes that fill the last block up, each of which sees itself only."""
    missing = -len(end) % BLOCK
    alone = torch.arange(len(end) + 1, len(end) + missing + 1, device=end.device)
    return torch.cat((end, alone))


def attend_under_block_mask(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    mask: BlockMask,
    source: torch.Tensor | None,
    scale: float | None,
) -> torch.Tensor:
    """Attention (1, A, L, D) to (1, L, A, D) under a mask over keys that are copies of the nodes in `source` (K)."""
    if source is not None:
        key, value = key.index_select(2, source), value.index_select(2, source)
    attend: Any = flex_attention if torch.compiler.is_compiling() else _compile_flex()
    grouped = query.shape[1] != key.shape[1]
    attended: torch.Tensor = attend(query, key, value, block_mask=mask, scale=scale, enable_gqa=grouped)
    return attended.transpose(1, 2)


@cache
def _compile_flex() -> Callable[..., torch.Tensor]:
    """FlexAttention compiled once for all lengths: a variant for each would soon meet torch's limit."""
    compiled: Callable[..., torch.Tensor] = torch.compile(flex_attention, dynamic=True)

    def call(*states: torch.Tensor, **settings: Any) -> torch.Tensor:
        with torch._dynamo.config.patch(recompile_limit=MAX_COMPILED):
            return compiled(*states, **settings)

    return call
