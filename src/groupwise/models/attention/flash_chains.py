"""Attention of a pack on a GPU in half precision: flash attention over its chains (`batching.chains`).

A chain's queries see its path and itself, causally: that is flash attention over rows of unequal length whose queries
stand at the end of their keys. A path is copied as often as chains leave it, and the gradients of its copies are added
up; no mask is built, nothing compiled.

Axes: L nodes, K keys, A attention heads, D their width.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from typing import Any

import torch
from torch.nn.functional import embedding_bag

IN_TORCH = find_spec("torch.nn.attention.varlen") is not None
"""Whether torch knows rows of unequal length in the form that is used here."""
MIN_CAPABILITY = (8, 0)
"""What a GPU must be capable of, in CUDA's numbers."""
WIDTHS = range(8, 257, 8)
"""How wide heads may be."""


def can_attend(device: torch.device, dtype: torch.dtype, width: int) -> bool:
    """Whether flash attention computes on a device in some precision with heads of a width."""
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
    # An operation that compilers know takes longer to call: a fifth of a millisecond a layer.
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
    """Attention (L, A, D), and what its backward pass wants to know of it.

    Copies of keys and values are made in it, and again in the backward pass, so that only the nodes' own are kept in
    between.
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
    """Gradients of queries, keys and values (L, A, D) from that of attention and from what it put out."""
    query, key, value = states
    copies = [query, _copy_to_keys(key, copied), _copy_to_keys(value, copied)]
    of_query, *of_copies = _flash_backward(gradient.contiguous(), outputs, copies, bounds, longest, scale)
    of_key, of_value = (_add_up_copies(gradients, copied) for gradients in of_copies)
    return of_query, of_key, of_value


def _copy_to_keys(states: torch.Tensor, copied: Sequence[torch.Tensor]) -> torch.Tensor:
    """States of nodes (L, A, D), each as often as it is a key (K, A, D)."""
    return states.index_select(0, copied[0]) if copied else states


def _add_up_copies(gradient: torch.Tensor, copied: Sequence[torch.Tensor]) -> torch.Tensor:
    """The gradients of keys (K, A, D) added up by node (L, A, D), in float32 and in one order."""
    if not copied:
        return gradient
    _, order, begins = copied
    total: torch.Tensor = embedding_bag(order, gradient.flatten(1), begins, mode="sum")
    return total.view(-1, *gradient.shape[1:])


def _save_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[torch.Tensor, torch.Tensor]) -> None:
    *states, bounds, ctx.longest, copied, ctx.scale = inputs
    ctx.save_for_backward(*output, *states, *bounds, *copied)


def _read_context(ctx: Any) -> tuple[Any, ...]:
    """What `_attend_backward` takes beside the gradient."""
    saved = ctx.saved_tensors
    return saved[:2], saved[2:5], saved[5:7], ctx.longest, saved[7:], ctx.scale


class _Attention(torch.autograd.Function):
    forward = staticmethod(_attend)
    setup_context = staticmethod(_save_context)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[Any, ...]:
        return (*_attend_backward(gradients[0], *_read_context(ctx)), *[None] * 4)


# The same for compilers, which must not look inside: they would keep the copies.
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
