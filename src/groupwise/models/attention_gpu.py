"""Attention of packs on a GPU, as an attention function that is registered with transformers; models are not patched.

In half precision it is flash attention over the chains of the pack. In float32, and for heads that flash attention does
not support, it is FlexAttention with block masks. Without a pack it is `sdpa`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import nn
from torch.nn.attention.flex_attention import BlockMask, flex_attention
from torch.nn.functional import embedding_bag, pad

from groupwise.models.pack import Pack
from groupwise.system.errors import ConfigError

# Attention of a pack on a GPU in any precision: FlexAttention with block masks from the interval rule.
#
# In pre-order, a stretch of neighbouring nodes sees only itself and the ancestors of its first node (see
# `models.attention`). So queries are computed in *stretches*, each with its own keys: that path, then its own nodes.
# Which blocks of a stretch's keys a block of its queries sees follows from two numbers per block:
#
#     seen: max end[k] > first q          full: min end[k] > last q
#
# This is FlexAttention's block mask for any pack; no pair of tokens is compared. Stretches speed up the backward pass,
# in which a block of keys waits for all queries that see it. A shared prompt is seen by every query of a pack. With
# copies per stretch, only the stretch waits for its copy, and autograd adds up the copies.
#
# Axes: L nodes, K keys, A attention heads, D their width; a table is blocks of queries by blocks of keys.

BLOCK = 128
"""Nodes per block; FlexAttention's backward pass needs whole blocks."""
STRETCH = 1024
"""Nodes per stretch. Shorter stretches copy paths more often; longer ones wait longer in the backward pass."""
MAX_COPIES = 8
"""Most keys per node. Long paths get longer stretches; otherwise copies would grow with the square of the length."""
NOBODY = -1
MAX_COMPILED = 64
"""Most variants of a compiled function; above torch's own limit of 8 it falls back to a much slower one."""


@dataclass(frozen=True, eq=False, kw_only=True)
class TreeKeys:
    """Which keys the queries of a pack see.

    Worked example: with blocks of 2 and stretches of one block, the nodes 0-1-2-3 and 0-1-4-5 have the keys [0, 1],
    [0, 1, 2, 3] and [0, 1, 4, 5]: source [0, 1, 0, 1, 2, 3, 0, 1, 4, 5].
    """

    mask: BlockMask
    source: torch.Tensor | None
    """Node of each key (K); None = the nodes themselves."""


def choose_stretch(end: torch.Tensor) -> int:
    """Nodes per stretch, from the ends of nodes (L): `STRETCH`, or more on long paths."""
    stretch = STRETCH
    while stretch < len(end) and len(end) + int(_find_ancestors(end, stretch).sum()) > MAX_COPIES * len(end):
        stretch *= 2
    return stretch


def find_tree_keys(end: torch.Tensor, *, stretch: int | None = None) -> TreeKeys:
    """The keys of nodes with the given ends (L, a multiple of `BLOCK`); `stretch` None = by `choose_stretch`."""
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

    `source` is the node of each key, or `NOBODY` for padding, which no query sees. `owner` is the stretch of each block
    of keys, and `stretch` the nodes per stretch; None = one stretch.
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
    """Number of key blocks per query block, and their indices first."""
    order = torch.argsort(table_KK.to(torch.int8), dim=1, descending=True, stable=True)
    return table_KK.sum(1, dtype=torch.int32)[None, None], order.to(torch.int32)[None, None]


def make_block_inputs(input_ids: torch.Tensor, position_ids: torch.Tensor, keys: TreeKeys) -> dict[str, Any]:
    """Tokens and positions (1, L) in whole blocks, and the mask for attention."""
    missing = -input_ids.shape[1] % BLOCK
    return {
        "input_ids": pad(input_ids, (0, missing)),
        "position_ids": pad(position_ids, (0, missing)),
        "attention_mask": keys.mask,
        **({} if keys.source is None else {"key_source": keys.source}),
    }


def fill_last_block(end: torch.Tensor) -> torch.Tensor:
    """Ends of nodes (L), and of nodes that fill the last block; each of those sees only itself."""
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
    """FlexAttention compiled once for all lengths: one variant per length would soon reach torch's limit."""
    compiled: Callable[..., torch.Tensor] = torch.compile(flex_attention, dynamic=True)

    def call(*states: torch.Tensor, **settings: Any) -> torch.Tensor:
        with torch._dynamo.config.patch(recompile_limit=MAX_COMPILED):
            return compiled(*states, **settings)

    return call


NAME = "groupwise_packs"
TAKEN_OVER = ("sdpa", "flex_attention")
"""Implementations that it replaces; without a pack it does the same as `sdpa`."""
UNSUPPORTED = {"s_aux": "sinks", "position_bias": "position biases", "softcap": "capped scores"}
"""Arguments of attention that packs do not support, and their names in messages."""

_ordinary: list[Callable[..., tuple[torch.Tensor, None]]] = []
"""The attention function of transformers for inputs without a pack, once it is imported."""
_masks: WeakKeyDictionary[Pack, TreeKeys] = WeakKeyDictionary()
"""Masks of packs, cached: an update reads a pack several times."""


def make_inputs(pack: Pack, dtype: torch.dtype, width: int) -> dict[str, Any]:
    """Inputs of a model's body for a pack on a GPU; `dtype` of attention, `width` of its heads."""
    if pack.chains is not None and can_attend(pack.end.device, dtype, width):
        return {"input_ids": pack.input_ids, "position_ids": pack.position_ids, **pack.chains.inputs}
    if pack not in _masks:
        _masks[pack] = find_tree_keys(fill_last_block(pack.end))
    return make_block_inputs(pack.input_ids, pack.position_ids, _masks[pack])


def attend_to_pack(
    module: nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: Any,
    scaling: float | None = None,
    **settings: Any,
) -> tuple[torch.Tensor, None]:
    """Attention as transformers asks for it: (1, A, L, D) in, (1, L, A, D) out."""
    has_chains = settings.get("cu_seq_lens_q") is not None
    if not isinstance(attention_mask, BlockMask) and not has_chains:
        return _ordinary[0](module, query, key, value, attention_mask, scaling=scaling, **settings)
    unsupported = [name for name in UNSUPPORTED if settings.get(name) is not None]
    if unsupported:
        raise ConfigError(
            f"the model's attention has {UNSUPPORTED[unsupported[0]]}, which packs do not support; use padded rows"
        )
    query, key, value = _cast_like_autocast(query, key, value)
    if has_chains:
        return attend_over_chains(query, key, value, scaling, settings), None
    return attend_under_block_mask(query, key, value, attention_mask, settings.get("key_source"), scaling), None


def register() -> None:
    """Register the attention function with transformers; without a pack, its masks are those of `sdpa`."""
    from transformers import AttentionInterface, AttentionMaskInterface
    from transformers.integrations.sdpa_attention import sdpa_attention_forward
    from transformers.masking_utils import sdpa_mask

    _ordinary[:] = [sdpa_attention_forward]
    AttentionInterface.register(NAME, attend_to_pack)
    AttentionMaskInterface.register(NAME, sdpa_mask)


def _cast_like_autocast(*states: torch.Tensor) -> list[torch.Tensor]:
    """Cast to the type of autocast: rotary positions may have widened queries and keys, but not values."""
    device = states[0].device.type
    dtype = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else states[0].dtype
    return [state.to(dtype) for state in states]


# Attention of a pack on a GPU in half precision: flash attention over its chains (`models.pack.Chains`).
#
# A chain's queries see its path and itself, causally. This is flash attention over rows of unequal length whose queries
# are at the end of their keys. A path is copied once per chain that leaves it, and the gradients of the copies are
# added up. No mask is built, and nothing is compiled.
#
# Axes: L nodes, K keys, A attention heads, D their width.

IN_TORCH = find_spec("torch.nn.attention.varlen") is not None
MIN_CAPABILITY = (8, 0)
WIDTHS = range(8, 257, 8)


def can_attend(device: torch.device, dtype: torch.dtype, width: int) -> bool:
    """Whether flash attention supports a device, a precision and a width of heads."""
    return (
        IN_TORCH
        and dtype in (torch.bfloat16, torch.float16)
        and width in WIDTHS
        and device.type == "cuda"
        and torch.cuda.get_device_capability(device) >= MIN_CAPABILITY
    )


def attend_over_chains(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, scale: float | None, settings: dict[str, Any]
) -> torch.Tensor:
    """Attention (1, A, L, D) to (1, L, A, D) by what `Chains.inputs` gave."""
    states = [states[0].transpose(0, 1).contiguous() for states in (query, key, value)]
    bounds = [settings["cu_seq_lens_q"], settings["cu_seq_lens_k"]]
    longest = [settings["max_length_q"], settings["max_length_k"]]
    scale = query.shape[-1] ** -0.5 if scale is None else scale
    # An operation that compilers know takes longer to call: 0.2 ms per layer.
    attend: Any = _attend_op if torch.compiler.is_compiling() else _Attention.apply
    attended: torch.Tensor = attend(*states, bounds, longest, settings.get("key_copies", []), scale)[0]
    return attended[None]


def _attend(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    bounds: Sequence[torch.Tensor],
    longest: Sequence[int],
    copied: Sequence[torch.Tensor],
    scale: float,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Attention (L, A, D), and what its backward pass needs.

    Keys and values are copied here, and again in the backward pass. In between, only those of the nodes are kept.
    """
    return _flash([query, _copy_to_keys(key, copied), _copy_to_keys(value, copied)], bounds, longest, scale)


def _attend_backward(
    gradient: torch.Tensor,
    outputs: Sequence[torch.Tensor],
    states: Sequence[torch.Tensor],
    bounds: Sequence[torch.Tensor],
    longest: Sequence[int],
    copied: Sequence[torch.Tensor],
    scale: float,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Gradients of queries, keys and values (L, A, D), from the gradient and the outputs of attention."""
    query, key, value = states
    copies = [query, _copy_to_keys(key, copied), _copy_to_keys(value, copied)]
    of_query, *of_copies = _flash_backward(gradient.contiguous(), outputs, copies, bounds, longest, scale)
    of_key, of_value = (_add_up_copies(gradients, copied) for gradients in of_copies)
    return of_query, of_key, of_value


def _copy_to_keys(states: torch.Tensor, copied: Sequence[torch.Tensor]) -> torch.Tensor:
    return states.index_select(0, copied[0]) if copied else states


def _add_up_copies(gradient: torch.Tensor, copied: Sequence[torch.Tensor]) -> torch.Tensor:
    """Add up the gradients of keys (K, A, D) by node (L, A, D), in float32 and in one order."""
    if not copied:
        return gradient
    _, order, begins = copied
    total: torch.Tensor = embedding_bag(order, gradient.flatten(1), begins, mode="sum")
    return total.view(-1, *gradient.shape[1:])


def _save_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[torch.Tensor, torch.Tensor]) -> None:
    *states, bounds, ctx.longest, copied, ctx.scale = inputs
    ctx.save_for_backward(*output, *states, *bounds, *copied)


def _read_context(ctx: Any) -> tuple[Any, ...]:
    """The arguments of `_attend_backward` after the gradient."""
    saved = ctx.saved_tensors
    return saved[:2], saved[2:5], saved[5:7], ctx.longest, saved[7:], ctx.scale


class _Attention(torch.autograd.Function):
    forward = staticmethod(_attend)
    setup_context = staticmethod(_save_context)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[Any, ...]:
        return (*_attend_backward(gradients[0], *_read_context(ctx)), *[None] * 4)


# The same as opaque operations: if compilers looked inside, they would keep the copies.
_attend_op = torch.library.custom_op("groupwise::attend_over_chains", _attend, mutates_args=())
_attend_backward_op = torch.library.custom_op(
    "groupwise::attend_over_chains_backward", _attend_backward, mutates_args=()
)


@_attend_op.register_fake
def _(query: torch.Tensor, *others: Any) -> tuple[torch.Tensor, torch.Tensor]:
    length, heads, _ = query.shape
    return torch.empty_like(query), query.new_empty((heads, length), dtype=torch.float32)


@_attend_backward_op.register_fake
def _(gradient: Any, outputs: Any, states: Sequence[torch.Tensor], *others: Any) -> tuple[torch.Tensor, ...]:
    return tuple(torch.empty_like(state) for state in states)


def _backward_op(ctx: Any, gradient: torch.Tensor, _: torch.Tensor) -> tuple[Any, ...]:
    context = _read_context(ctx)
    return (*_attend_backward_op(gradient, *context), [None, None], None, [None] * len(context[4]), None)


_attend_op.register_autograd(_backward_op, setup_context=_save_context)


def _flash(
    states: Sequence[torch.Tensor], bounds: Sequence[torch.Tensor], longest: Sequence[int], scale: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """Causal flash attention over rows of unequal length; the last query of a row sees its last key."""
    attend = torch.ops.aten._flash_attention_forward
    outputs: Any = attend(*states, *bounds, *longest, 0.0, True, False, scale=scale)
    return outputs[0], outputs[1]


def _flash_backward(
    gradient: torch.Tensor,
    outputs: Sequence[torch.Tensor],
    states: Sequence[torch.Tensor],
    bounds: Sequence[torch.Tensor],
    longest: Sequence[int],
    scale: float,
) -> Sequence[torch.Tensor]:
    back = torch.ops.aten._flash_attention_backward
    nothing_dropped = torch.zeros(2, dtype=torch.uint64, device=gradient.device), gradient.new_empty(0)
    gradients: Any = back(gradient, *states, *outputs, *bounds, *longest, 0.0, True, *nothing_dropped, scale=scale)
    return list(gradients)
