"""What a model is called with to read a pack: its tokens, their positions and a mask of who sees whom.

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
    """What the body of a model is called with to read a pack; `dense` = with a mask that is written out.

    On a GPU a model that attends by `sdpa` is switched, once and for good, to an attention function that does as
    `sdpa` does and knows packs too; a context around the call would be gone when checkpointed layers run again. Not one
    that caps its scores (Gemma 2), which `sdpa` cannot: load it with `eager`.
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
    """Which node sees which (1, 1, L, L): true where k is q or an ancestor of q, from the ends of nodes (L).

    With a `dtype` the mask is additive: 0 where the node is seen, else the lowest number of that type. Every node sees
    itself, so that no row is masked throughout: such a row is NaN in some attention kernels and an average in others.
    """
    node = torch.arange(len(end), device=end.device)
    seen = (node[None, :] <= node[:, None]) & (node[:, None] < end[None, :])
    if dtype is not None:
        seen = torch.zeros(seen.shape, dtype=dtype, device=seen.device).masked_fill_(~seen, torch.finfo(dtype).min)
    return seen[None, None]


def make_attention_mask(pack: Pack, *, implementation: str, dtype: torch.dtype) -> torch.Tensor:
    """The mask in the form that a Hugging Face attention implementation takes as `attention_mask`.

    A four-dimensional mask is used as it is, in every layer. `sdpa` reads booleans, on a CPU those of a mask that is
    never written out; `eager` adds whatever it is given to the scores, so that booleans would add 1 to what is seen and
    hide nothing.
    """
    if implementation in ("sdpa", gpu_attention.NAME):
        return TreeMask.of(pack.end) if pack.end.device.type == "cpu" else make_dense_mask(pack.end)
    if implementation == "eager":
        return make_dense_mask(pack.end, dtype=dtype)
    raise ConfigError(
        f"the model runs {implementation!r} attention, which takes no mask of ours; load it with "
        "attn_implementation='sdpa' or 'eager', or use padded rows, one a sample"
    )


# Attention of a pack on a CPU, at the cost of its paths instead of the square of its length.
#
# In pre-order, what a block of neighbouring nodes sees outside itself are the ancestors of the block's first node: if k
# comes before the block and is an ancestor of some q in it, then `k < first <= q < end[k]`, so that k is an ancestor of
# the first as well. So a block of queries needs the keys of one path and its own, whatever else is in the pack. Rows
# side by side are a forest too, and profit as much.
#
# `TreeMask` brings this to a model: a boolean mask in which no entry is stored.
#
# Axes: L nodes, B nodes of a block, K keys a block sees, A attention heads, D their width.

BLOCK = 128
"""Nodes of a block: with fewer, fewer keys are computed and not seen; with more, fewer keys are copied."""


@dataclass(frozen=True, eq=False, kw_only=True, slots=True)
class Block:
    """Neighbouring nodes and what they see.

    Worked example: of the nodes 0-1-2 and 0-3 in blocks of two, the second block is [2, 4), with path (0, 1) and rows
    [0, 0, 0, -inf] and [0, -inf, -inf, 0] of `mask`: node 3 sees the root and itself.
    """

    nodes: slice
    path: torch.Tensor
    """The ancestors of the first node, ascending."""
    mask: torch.Tensor
    """0 where a node sees a key, else -inf (B, K); the keys are the path, then the nodes."""


def cut_blocks(end: torch.Tensor, *, size: int = BLOCK) -> list[Block]:
    """Cut the nodes of a pack into blocks."""
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


def attend_along_paths(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, blocks: Sequence[Block], *, scale: float | None = None
) -> torch.Tensor:
    """Attention of each node to its ancestors (1, A, L, D), from queries, keys and values of that shape."""
    apply = cast(Callable[..., torch.Tensor], _TreeAttention.apply)
    return apply(query[0], key[0], value[0], blocks, scale)[None]


class _TreeAttention(torch.autograd.Function):
    """Torch's attention kernel block by block, gradients of keys and values added up in place.

    Left to autograd, each block would add a gradient of the size of all keys: the square of the length again.
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
            # Kept as they are: a layer that is run again for the backward pass would be so once a block. Detached, or
            # what a kernel keeps of its own output would hold the graph that holds it.
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
        grad_query, grad_key, grad_value = (into.new_zeros(shape) for shape in ctx.shapes)
        for block, inputs, attended in ctx.parts:
            path, nodes = block.path, block.nodes
            # Kept for a second backward pass, should the caller keep the graph around this one.
            parts = torch.autograd.grad(attended, inputs, into[None, :, nodes], retain_graph=True)
            grad_query[:, nodes] = parts[0][0]
            for total, part in ((grad_key, parts[1][0]), (grad_value, parts[2][0])):
                total[:, path] += part[:, : len(path)]  # no node is twice on a path
                total[:, nodes] += part[:, len(path) :]
        return grad_query, grad_key, grad_value, None, None


_PROPERTIES = ("shape", "device", "dtype", "ndim", "requires_grad")
_ABOUT_SHAPE = {torch.Tensor.dim, torch.Tensor.size, torch.Tensor.numel} | {
    getattr(torch.Tensor, name).__get__ for name in _PROPERTIES
}
"""What tensors are asked before attention uses them; none of it reads an entry."""


class UnwrittenTensor(torch.Tensor):
    """A tensor whose entries exist only where they are asked for.

    It is brought to a model that knows nothing of it: torch's own `scaled_dot_product_attention` is computed without
    the entries, any other operation gets them.
    """

    @classmethod
    def attend(cls, *tensors: Any, **settings: Any) -> torch.Tensor | None:
        """Attention without the entries; None where a call needs them."""
        raise NotImplementedError

    def write_out(self) -> torch.Tensor:
        """The same as an ordinary tensor."""
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
        return attend_along_paths(query, key, value, mask.blocks, scale=settings.get("scale"))
