"""The inputs of a model that reads a pack: tokens, positions, and a mask of which token sees which.

The mask follows from the interval rule: in pre-order, q sees k where `k <= q < end[k]`.

Axes: L nodes of a pack.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch.autograd.graph import saved_tensors_hooks
from torch.nn import functional

from groupwise.models import attention_gpu as gpu_attention
from groupwise.models.causal_lm import CausalLM
from groupwise.models.pack import Pack
from groupwise.system.errors import ConfigError


def make_pack_inputs(halves: CausalLM, pack: Pack, *, dense: bool = False) -> dict[str, Any]:
    """The inputs of a model's body for a pack; `dense` = with a mask that is written out.

    On a GPU, a model with `sdpa` attention is switched for good to an attention function that also reads packs. A
    context around the call would be gone when checkpointed layers run again. Models that cap their scores (Gemma 2) are
    not switched, because `sdpa` cannot cap: load them with `eager`.
    """
    on_gpu = pack.end.device.type == "cuda"
    if on_gpu and halves.attention in gpu_attention.TAKEN_OVER and not halves.has_capped_scores:
        gpu_attention.register()
        halves.set_attention(gpu_attention.NAME)
    if on_gpu and halves.attention == gpu_attention.NAME and not dense:
        return gpu_attention.make_inputs(pack, halves.compute_dtype, halves.head_width)
    mask = make_attention_mask(pack, implementation=halves.attention, dtype=next(halves.body.parameters()).dtype)
    return {"input_ids": pack.input_ids, "position_ids": pack.position_ids, "attention_mask": mask}


def make_dense_mask(end: torch.Tensor, *, dtype: torch.dtype | None = None) -> torch.Tensor:
    """Which node sees which (1, 1, L, L): true if k is q or an ancestor of q, from the ends of nodes (L).

    With a `dtype` the mask is additive: 0 if the node is seen, else the lowest number of that type. Every node sees
    itself. A fully masked row would be NaN in some attention kernels and an average in others.
    """
    node = torch.arange(len(end), device=end.device)
    seen = (node[None, :] <= node[:, None]) & (node[:, None] < end[None, :])
    if dtype is not None:
        seen = torch.zeros(seen.shape, dtype=dtype, device=seen.device).masked_fill_(~seen, torch.finfo(dtype).min)
    return seen[None, None]


def make_attention_mask(pack: Pack, *, implementation: str, dtype: torch.dtype) -> torch.Tensor:
    """The `attention_mask` for a Hugging Face attention implementation.

    A four-dimensional mask is used unchanged in every layer. `sdpa` takes booleans; on a CPU, this mask is never
    written out. `eager` adds the mask to the scores, so it needs numbers: booleans would hide nothing.
    """
    if implementation in ("sdpa", gpu_attention.NAME):
        return TreeMask.of(pack.end) if pack.end.device.type == "cpu" else make_dense_mask(pack.end)
    if implementation == "eager":
        return make_dense_mask(pack.end, dtype=dtype)
    raise ConfigError(
        f"the model runs {implementation!r} attention, which cannot use the mask of a pack; load it with "
        "attn_implementation='sdpa' or 'eager', or use padded rows, one per sample"
    )


# Attention of a pack on a CPU. Its cost grows with the paths of the pack, not with the square of its length.
#
# In pre-order, a block of neighbouring nodes sees only itself and the ancestors of its first node. Proof: if k comes
# before the block and is an ancestor of some q in it, then `k < first <= q < end[k]`, so k is an ancestor of the first
# node too. So a block of queries needs only the keys of one path and its own. The same holds for rows side by side.
#
# `TreeMask` passes this through a model: a boolean mask that stores no entry.
#
# Axes: L nodes, B nodes of a block, K keys that a block sees, A attention heads, D their width.

BLOCK = 128
"""Nodes per block. Smaller blocks compute fewer keys that are not seen; larger blocks copy fewer keys."""


@dataclass(frozen=True, eq=False, kw_only=True, slots=True)
class Block:
    """Neighbouring nodes and the keys that they see.

    Worked example: of the nodes 0-1-2 and 0-3 in blocks of two, the second block is [2, 4), with path (0, 1) and rows
    [0, 0, 0, -inf] and [0, -inf, -inf, 0] of `mask`: node 3 sees the root and itself.
    """

    nodes: slice
    path: torch.Tensor
    """The ancestors of the first node, ascending."""
    mask: torch.Tensor
    """0 if a node sees a key, else -inf (B, K); the keys are the path, then the nodes."""


def cut_blocks(end: torch.Tensor, *, size: int = BLOCK) -> list[Block]:
    node = torch.arange(len(end))
    blocks = []
    for low in range(0, len(end), size):
        own = node[low : low + size]
        path = torch.nonzero(end[:low] > low).flatten()
        key = torch.cat((path, own))
        seen_BK = (key[None, :] <= own[:, None]) & (own[:, None] < end[key][None, :])
        mask_BK = torch.zeros(seen_BK.shape).masked_fill_(~seen_BK, -torch.inf)
        blocks.append(Block(nodes=slice(low, low + len(own)), path=path, mask=mask_BK))
    return blocks


class _TreeAttention(torch.autograd.Function):
    """Attention of each node to its ancestors (A, L, D), by torch's kernel block by block.

    Gradients of keys and values are added up in place. With plain autograd, each block would add a gradient of the size
    of all keys: the square of the length again.
    """

    @staticmethod
    def forward(
        ctx: Any,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        blocks: Sequence[Block],
        scale: float | None,
    ) -> torch.Tensor:
        trains = any(ctx.needs_input_grad)
        output = query.new_empty((*query.shape[:2], value.shape[-1]))
        ctx.parts = []
        for block in blocks:
            path, nodes = block.path, block.nodes
            queries = query[None, :, nodes].detach().requires_grad_(trains)
            keys = torch.cat((key[:, path], key[:, nodes]), dim=1)[None].detach().requires_grad_(trains)
            values = torch.cat((value[:, path], value[:, nodes]), dim=1)[None].detach().requires_grad_(trains)
            # These hooks keep saved tensors here; checkpointing hooks would run a layer again once per block. Detached,
            # because a kernel that keeps its own output would otherwise hold the graph that holds it.
            with torch.set_grad_enabled(trains), saved_tensors_hooks(torch.Tensor.detach, torch.Tensor.detach):
                attended = functional.scaled_dot_product_attention(
                    queries, keys, values, attn_mask=block.mask.to(query.dtype), scale=scale
                )
            output[:, nodes] = attended[0].detach()
            if trains:
                ctx.parts.append((block, (queries, keys, values), attended))
        ctx.shapes = query.shape, key.shape, value.shape
        return output

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, into: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        grad_query, grad_key, grad_value = map(into.new_zeros, ctx.shapes)
        for block, inputs, attended in ctx.parts:
            path, nodes = block.path, block.nodes
            # Retained, because the caller may run a second backward pass.
            parts = torch.autograd.grad(attended, inputs, into[None, :, nodes], retain_graph=True)
            grad_query[:, nodes] = parts[0][0]
            for total, part in ((grad_key, parts[1][0]), (grad_value, parts[2][0])):
                total[:, path] += part[:, : len(path)]  # a path has each node once
                total[:, nodes] += part[:, len(path) :]
        return grad_query, grad_key, grad_value, None, None


_ABOUT_SHAPE = {torch.Tensor.dim, torch.Tensor.size, torch.Tensor.numel} | {
    getattr(torch.Tensor, name).__get__ for name in ("shape", "device", "dtype", "ndim", "requires_grad")
}
"""Operations before attention that read no entry."""


class UnwrittenTensor(torch.Tensor):
    """A tensor whose entries are computed only on demand.

    A model uses it like any tensor. Torch's `scaled_dot_product_attention` does not need the entries; any other
    operation gets them.
    """

    @classmethod
    def attend(cls, *tensors: Any, **settings: Any) -> torch.Tensor | None:
        """Attention without the entries; None if the call needs them."""
        raise NotImplementedError

    def write_out(self) -> torch.Tensor:
        """An ordinary tensor with the entries."""
        raise NotImplementedError

    @classmethod
    def __torch_function__(
        cls, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if func is functional.scaled_dot_product_attention:
            attended = cls.attend(*args, **kwargs)
            if attended is not None:
                return attended
        if func in _ABOUT_SHAPE:
            return super().__torch_function__(func, types, args, kwargs)  # type: ignore[no-untyped-call]
        return func(*_write_out(args), **{name: _write_out(value) for name, value in kwargs.items()})


def _write_out(value: Any) -> Any:
    if isinstance(value, tuple | list):
        return type(value)(_write_out(item) for item in value)
    return value.write_out() if isinstance(value, UnwrittenTensor) else value


class TreeMask(UnwrittenTensor):
    """A boolean attention mask (1, 1, L, L) by the interval rule."""

    end: torch.Tensor
    blocks: list[Block]

    @classmethod
    def of(cls, end: torch.Tensor, *, size: int = BLOCK) -> TreeMask:
        mask = torch.zeros((), dtype=torch.bool).expand(1, 1, len(end), len(end)).as_subclass(cls)
        mask.end, mask.blocks = end, cut_blocks(end, size=size)
        return mask

    def write_out(self) -> torch.Tensor:
        return make_dense_mask(self.end)

    @classmethod
    def attend(cls, *tensors: Any, **settings: Any) -> torch.Tensor | None:
        """Attention of `(query, key, value, attn_mask=mask, scale=...)` on one row, without dropout."""
        mask = settings.get("attn_mask")
        if len(tensors) != 3 or not isinstance(mask, TreeMask):
            return None
        query, key, value = tensors
        is_one_row = query.shape[:3] == key.shape[:3] == value.shape[:3] and query.shape[0] == 1
        if not is_one_row or settings.get("dropout_p") or settings.get("is_causal"):
            return None
        apply = cast(Callable[..., torch.Tensor], _TreeAttention.apply)
        return apply(query[0], key[0], value[0], mask.blocks, settings.get("scale"))[None]
