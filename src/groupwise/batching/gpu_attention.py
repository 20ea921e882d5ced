"""Attention of a pack on a GPU, on models as they are: transformers lets an attention function be registered by name.

In pre-order, what a run of neighbouring nodes sees outside itself are the ancestors of its first node (see
`tree_attention`). So queries are taken in *segments*, each with keys of its own: that path, then its own nodes. Which
blocks of a segment's keys a block of its queries sees follows from two numbers a block:

    seen: max end[k] > first q          full: min end[k] > last q

and that is FlexAttention's block mask, whatever the forest; no pair of tokens is looked at. Segments are there for the
backward pass, in which a block of keys waits for all queries that see it: those of a shared prompt are every query of a
pack. With keys of its own a segment's prompt is waited for by the segment alone, and autograd adds up the copies.

Samples side by side, none of which shares anything, need no mask at all: flash attention over rows of unequal length
takes where each begins.

Axes: L nodes, K keys, A attention heads, D their width; a table is blocks of queries by blocks of keys.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import nn
from torch.nn.attention.flex_attention import BlockMask, flex_attention
from torch.nn.functional import pad

from groupwise.batching.pack import Pack
from groupwise.core.errors import ConfigError

NAME = "groupwise_packs"
"""What the attention function is called among transformers' own."""
TAKEN_OVER = ("sdpa", "flex_attention")
"""Implementations it stands in for: without a pack it does what `sdpa` does."""
BLOCK = 128
"""Nodes of a block; FlexAttention's backward pass wants whole ones."""
STRANGE = {"s_aux": "sinks", "position_bias": "position biases", "softcap": "capped scores"}
"""What a model may ask of attention beside a mask, and how it is called."""
SEGMENT = 1024
"""Nodes of a segment: with fewer, paths are copied more often; with more, the backward pass waits longer for them."""
NOBODY = -1
MOST_COMPILED = 64
"""Variants of a compiled function that may exist: beyond torch's own limit of 8 it falls back to a far slower one."""

_ordinary: list[Callable[..., tuple[torch.Tensor, None]]] = []
"""What it does without a pack, once transformers has been asked for it."""
_masks: WeakKeyDictionary[Pack, TreeKeys] = WeakKeyDictionary()


@dataclass(frozen=True, eq=False, kw_only=True)
class TreeKeys:
    """Which keys the queries of a pack see.

    Worked example: with blocks of 2 and segments of one block, the nodes 0-1-2-3 and 0-1-4-5 have the keys [0, 1],
    [0, 1, 2, 3] and [0, 1, 4, 5]: source [0, 1, 0, 1, 2, 3, 0, 1, 4, 5].
    """

    mask: BlockMask
    """The blocks of keys that each block of queries sees."""
    source: torch.Tensor | None
    """Node of each key (K); None = the nodes as they come."""


def tree_keys(end: torch.Tensor, *, segment: int = SEGMENT) -> TreeKeys:
    """The keys of nodes with the given ends (L), a multiple of `BLOCK` of them, in segments of so many nodes."""
    node = torch.arange(len(end), device=end.device)
    if len(end) <= segment:
        return TreeKeys(mask=block_mask(end, node, torch.zeros_like(node[::BLOCK])), source=None)
    first = node[::segment]
    is_ancestor = (node[None, :] < first[:, None]) & (end[None, :] > first[:, None])
    keys, owner = [], []
    for number, (begin, path) in enumerate(zip(first.tolist(), is_ancestor, strict=True)):
        found = torch.nonzero(path)[:, 0]
        own = node[begin : begin + segment]
        keys += [found, found.new_full((-len(found) % BLOCK,), NOBODY), own]
        owner += [number] * (-(-len(found) // BLOCK) + len(own) // BLOCK)
    source = torch.cat(keys)
    mask = block_mask(end, source, torch.tensor(owner, device=end.device), segment=segment)
    return TreeKeys(mask=mask, source=source.clamp(min=0))


def block_mask(
    end: torch.Tensor, source: torch.Tensor, owner: torch.Tensor, *, segment: int | None = None
) -> BlockMask:
    """The mask of nodes with the given ends (L) over keys (K).

    Args:
        end: One past the last node of each node's subtree.
        source: Node of each key; `NOBODY` at padding, which no query sees.
        owner: Segment of each block of keys.
        segment: Nodes of a segment; None = all are one.
    """
    is_padding = source == NOBODY
    nodes = source.masked_fill(is_padding, len(end)).to(torch.int32)
    ends = torch.where(is_padding, 0, end[source]).to(torch.int32)
    block = torch.arange(len(end) // BLOCK, device=end.device)[:, None]
    first, last = block * BLOCK, (block + 1) * BLOCK - 1
    lowest, highest = nodes.view(-1, BLOCK).aminmax(dim=1)
    nearest, farthest = ends.view(-1, BLOCK).aminmax(dim=1)
    is_mine = owner[None, :] == first // (segment or len(end))
    is_seen = is_mine & (lowest[None, :] <= last) & (farthest[None, :] > first)
    is_full = is_mine & (highest[None, :] <= first) & (nearest[None, :] > last)

    def sees(batch: Any, head: Any, query: torch.Tensor, key: torch.Tensor) -> torch.Tensor:
        return (nodes[key] <= query) & (query < ends[key])

    return BlockMask.from_kv_blocks(
        *_listed(is_seen & ~is_full),
        *_listed(is_full),
        BLOCK_SIZE=BLOCK,
        mask_mod=sees,
        seq_lengths=(len(end), len(source)),
    )


def _listed(table_KK: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """How many blocks of keys each block of queries has, and which: those first."""
    order = torch.argsort(table_KK.to(torch.int8), dim=1, descending=True, stable=True)
    return table_KK.sum(1, dtype=torch.int32)[None, None], order.to(torch.int32)[None, None]


def inputs(pack: Pack, dtype: torch.dtype) -> dict[str, Any]:
    """What the body of a model is called with: tokens, positions, and how attention finds its way.

    Args:
        pack: Samples, on a GPU.
        dtype: What attention will be computed in.
    """
    if pack.is_plain and dtype.itemsize == 2 and _VARLEN is not None:
        begins = torch.nonzero(pack.position_ids[0] == 0)[:, 0]
        bounds = torch.cat((begins, begins.new_tensor([len(pack)]))).to(torch.int32)
        rows = {"cu_seq_lens_q": bounds, "cu_seq_lens_k": bounds}
        lengths = {"max_length_q": pack.longest, "max_length_k": pack.longest}
        return {
            "input_ids": pack.input_ids,
            "position_ids": pack.position_ids,
            # Without any, transformers would write one out for the whole pack, by the positions that begin anew.
            "attention_mask": bounds.new_zeros((1, 1, 1, 1)),
            **rows,
            **lengths,
        }
    missing = -len(pack) % BLOCK
    if pack not in _masks:
        alone = torch.arange(len(pack) + 1, len(pack) + missing + 1, device=pack.end.device)  # sees itself only
        _masks[pack] = tree_keys(torch.cat((pack.end, alone)))
    keys = _masks[pack]
    return {
        "input_ids": pad(pack.input_ids, (0, missing)),
        "position_ids": pad(pack.position_ids, (0, missing)),
        "attention_mask": keys.mask,
        **({} if keys.source is None else {"key_source": keys.source}),
    }


def attention(
    module: nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: Any,
    scaling: float | None = None,
    **settings: Any,
) -> tuple[torch.Tensor, None]:
    """Attention as transformers asks for it: (1, A, L, D) in, (1, L, A, D) out."""
    bounds = settings.get("cu_seq_lens_q")
    if not isinstance(attention_mask, BlockMask) and bounds is None:
        return _ordinary[0](module, query, key, value, attention_mask, scaling=scaling, **settings)
    strange = [name for name in STRANGE if settings.get(name) is not None]
    if strange:
        raise ConfigError(f"the model's attention has {STRANGE[strange[0]]}, which packs do not know; use padded rows")
    query, key, value = _like_autocast(query, key, value)
    if bounds is not None:
        return _over_rows(query, key, value, bounds, settings["max_length_q"], scaling), None
    source = settings.get("key_source")
    if source is not None:
        key, value = key.index_select(2, source), value.index_select(2, source)
    attend: Any = flex_attention if torch.compiler.is_compiling() else _compiled_flex()
    grouped = query.shape[1] != key.shape[1]
    attended = attend(query, key, value, block_mask=attention_mask, scale=scaling, enable_gqa=grouped)
    return attended.transpose(1, 2), None


def register() -> None:
    """Make the attention function known to transformers; its masks, where no pack brings one, are those of `sdpa`."""
    from transformers import AttentionInterface, AttentionMaskInterface
    from transformers.integrations.sdpa_attention import sdpa_attention_forward
    from transformers.masking_utils import sdpa_mask

    _ordinary[:] = [sdpa_attention_forward]
    AttentionInterface.register(NAME, attention)
    AttentionMaskInterface.register(NAME, sdpa_mask)


def _over_rows(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, bounds: torch.Tensor, longest: int, scale: float | None
) -> torch.Tensor:
    assert _VARLEN is not None, "inputs() gives bounds only where rows of unequal length can be attended to"
    rows = [states[0].transpose(0, 1) for states in (query, key, value)]
    attended: torch.Tensor = _VARLEN(*rows, bounds, longest, scale)
    return attended[None]


def _varlen() -> Callable[..., torch.Tensor] | None:
    """Causal flash attention over rows of unequal length, in the words of the torch at hand; None = it has none."""
    try:
        from torch.nn.attention.varlen import varlen_attn
    except ImportError:
        return None
    known = inspect.signature(varlen_attn).parameters
    is_causal = {"window_size": (-1, 0)} if "window_size" in known else {"is_causal": True}

    def call(
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        bounds: torch.Tensor,
        longest: int,
        scale: float | None,
    ) -> torch.Tensor:
        more: dict[str, Any] = dict(is_causal)
        if scale is not None and "scale" in known:
            more["scale"] = scale
        elif scale is not None:
            query = query * (scale * query.shape[-1] ** 0.5)
        if "enable_gqa" in known:
            more["enable_gqa"] = query.shape[1] != key.shape[1]
        attended: Any = varlen_attn(query, key, value, bounds, bounds, longest, longest, **more)
        return attended  # type: ignore[no-any-return]

    return call


_VARLEN = _varlen()


@cache
def _compiled_flex() -> Callable[..., torch.Tensor]:
    """FlexAttention compiled once for all lengths: a variant for each would soon meet torch's limit."""
    compiled: Callable[..., torch.Tensor] = torch.compile(flex_attention, dynamic=True)

    def call(*states: torch.Tensor, **settings: Any) -> torch.Tensor:
        with torch._dynamo.config.patch(recompile_limit=MOST_COMPILED):
            return compiled(*states, **settings)

    return call


def _like_autocast(*states: torch.Tensor) -> list[torch.Tensor]:
    """States in the type that autocast computes in: rotary positions may have widened queries and keys, not values."""
    device = states[0].device.type
    dtype = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else states[0].dtype
    return [each.to(dtype) for each in states]
