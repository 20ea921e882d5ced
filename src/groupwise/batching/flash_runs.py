"""Attention of a pack on a GPU in half precision: flash attention over runs, each with the keys of its whole path.

In pre-order, a *run* is a chain of nodes of which each is the first child of the one before. Its queries see its path
and itself, causally: that is flash attention over rows of unequal length whose queries stand at the end of their keys.
So a path is copied as often as runs leave it, and the gradients of its copies are added up; no mask is built, nothing
compiled. Samples side by side are runs without a path: the nodes are the keys.

Axes: L nodes, R runs, K keys, A attention heads, D their width.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch.nn.functional import embedding_bag

from groupwise.batching.placing import moved
from groupwise.core.segments import IntArray

IN_TORCH = find_spec("torch.nn.attention.varlen") is not None
"""Whether torch knows rows of unequal length in the form that is used here."""
LEAST_CAPABILITY = (8, 0)
"""What a GPU must be capable of, in CUDA's numbers."""


def is_known_to(device: torch.device, dtype: torch.dtype) -> bool:
    """Whether flash attention computes on a device in some precision."""
    return (
        IN_TORCH
        and dtype in (torch.bfloat16, torch.float16)
        and device.type == "cuda"
        and torch.cuda.get_device_capability(device) >= LEAST_CAPABILITY
    )


@dataclass(frozen=True, eq=False, kw_only=True)
class Runs:
    """The runs of a pack.

    Worked example: the nodes 0-1-2 and 0-1-3 have depths [0, 1, 2, 2] and the runs [0, 1, 2] and [3], so that queries
    is [0, 3, 4], keys [0, 3, 6], source [0, 1, 2, 0, 1, 3], order [0, 3, 1, 4, 2, 5] and begins [0, 2, 4, 5].
    """

    queries: torch.Tensor
    """Where each run begins, and L (R + 1)."""
    keys: torch.Tensor
    """Where the keys of each run begin, and K (R + 1)."""
    source: torch.Tensor
    """Node of each key (K)."""
    order: torch.Tensor
    """The keys by node, those of a node as they come (K)."""
    begins: torch.Tensor
    """Where the keys of each node begin in that order (L)."""
    most_queries: int
    """Nodes of the longest run."""
    most_keys: int
    """Keys of the run that has most."""
    is_plain: bool
    """Whether no node has two children, so that the nodes are the keys."""

    @classmethod
    def of(cls, depth: IntArray, *, is_plain: bool = False) -> Runs:
        """The runs of nodes in pre-order at the given depths (L)."""
        queries = np.append(np.flatnonzero(np.diff(depth, prepend=depth[0]) != 1), len(depth))
        # The path of a node is what came last at each depth.
        last, paths = np.empty(int(depth.max()) + 1, dtype=np.int64), []
        for low, high in pairwise(queries.tolist()):
            last[depth[low] : depth[high - 1] + 1] = np.arange(low, high)
            paths.append(last[: depth[high - 1] + 1].copy())
        keys, source = np.append(0, np.cumsum([len(path) for path in paths])), np.concatenate(paths)
        counts = np.bincount(source)
        return cls(
            queries=torch.from_numpy(queries).to(torch.int32),
            keys=torch.from_numpy(keys).to(torch.int32),
            source=torch.from_numpy(source),
            order=torch.from_numpy(np.argsort(source, kind="stable")),
            begins=torch.from_numpy(np.cumsum(counts) - counts),
            most_queries=int(np.diff(queries).max()),
            most_keys=int(np.diff(keys).max()),
            is_plain=is_plain,
        )

    def to(self, device: torch.device | str) -> Runs:
        """The same on a device."""
        return replace(self, **moved(self, device))

    @property
    def inputs(self) -> dict[str, Any]:
        """How attention finds its way, in the words of transformers."""
        return {
            # Without any, transformers would write one out for the whole pack, by the positions that begin anew.
            "attention_mask": self.queries.new_zeros((1, 1, 1, 1)),
            "cu_seq_lens_q": self.queries,
            "cu_seq_lens_k": self.keys,
            "max_length_q": self.most_queries,
            "max_length_k": self.most_keys,
            **({} if self.is_plain else {"key_copies": [self.source, self.order, self.begins]}),
        }


def attend_over_runs(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, scale: float | None, settings: dict[str, Any]
) -> torch.Tensor:
    """Attention (1, A, L, D) to (1, L, A, D) by what `Runs.inputs` gave."""
    states = [states[0].transpose(0, 1).contiguous() for states in (query, key, value)]
    bounds = [settings["cu_seq_lens_q"], settings["cu_seq_lens_k"]]
    longest = [settings["max_length_q"], settings["max_length_k"]]
    scale = query.shape[-1] ** -0.5 if scale is None else scale
    # An operation that compilers know takes longer to call: a fifth of a millisecond a layer.
    attend: Any = _attend if torch.compiler.is_compiling() else _Attention.apply
    attended: torch.Tensor = attend(*states, bounds, longest, settings.get("key_copies", []), scale)[0]
    return attended[None]


def _attended(
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
    return _flash([query, _copies(key, copied), _copies(value, copied)], bounds, longest, scale)


def _gradients(
    gradient: torch.Tensor,
    found: Sequence[torch.Tensor],
    states: Sequence[torch.Tensor],
    bounds: Sequence[torch.Tensor],
    longest: Sequence[int],
    copied: Sequence[torch.Tensor],
    scale: float,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Gradients of queries, keys and values (L, A, D) from that of attention, which found what is given."""
    query, key, value = states
    copies = [query, _copies(key, copied), _copies(value, copied)]
    of_query, *of_copies = _flash_backward(gradient.contiguous(), found, copies, bounds, longest, scale)
    of_key, of_value = (_added_up(each, copied) for each in of_copies)
    return of_query, of_key, of_value


def _copies(states: torch.Tensor, copied: Sequence[torch.Tensor]) -> torch.Tensor:
    """States of nodes (L, A, D), each as often as it is a key (K, A, D)."""
    return states.index_select(0, copied[0]) if copied else states


def _added_up(gradient: torch.Tensor, copied: Sequence[torch.Tensor]) -> torch.Tensor:
    """The gradients of keys (K, A, D) added up by node (L, A, D), in float32 and in one order."""
    if not copied:
        return gradient
    _, order, begins = copied
    total: torch.Tensor = embedding_bag(order, gradient.flatten(1), begins, mode="sum")
    return total.view(-1, *gradient.shape[1:])


def _keep(ctx: Any, inputs: tuple[Any, ...], output: tuple[torch.Tensor, torch.Tensor]) -> None:
    *states, bounds, ctx.longest, copied, ctx.scale = inputs
    ctx.save_for_backward(*output, *states, *bounds, *copied)


def _kept(ctx: Any) -> tuple[Any, ...]:
    """What `_gradients` takes beside the gradient."""
    kept = ctx.saved_tensors
    return kept[:2], kept[2:5], kept[5:7], ctx.longest, kept[7:], ctx.scale


class _Attention(torch.autograd.Function):
    forward = staticmethod(_attended)
    setup_context = staticmethod(_keep)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[Any, ...]:
        return (*_gradients(gradients[0], *_kept(ctx)), *[None] * 4)


# The same for compilers, which must not look inside: they would keep the copies.
_attend = torch.library.custom_op("groupwise::attend_over_runs", _attended, mutates_args=())
_attend_backward = torch.library.custom_op("groupwise::attend_over_runs_backward", _gradients, mutates_args=())


@_attend.register_fake
def _(query: torch.Tensor, *others: Any) -> tuple[torch.Tensor, torch.Tensor]:
    length, heads, _ = query.shape
    return torch.empty_like(query), query.new_empty((heads, length), dtype=torch.float32)


@_attend_backward.register_fake
def _(gradient: Any, found: Any, states: Sequence[torch.Tensor], *others: Any) -> tuple[torch.Tensor, ...]:
    return tuple(torch.empty_like(each) for each in states)


def _backward(ctx: Any, gradient: torch.Tensor, _: torch.Tensor) -> tuple[Any, ...]:
    kept = _kept(ctx)
    return (*_attend_backward(gradient, *kept), [None, None], None, [None] * len(kept[4]), None)


_attend.register_autograd(_backward, setup_context=_keep)


def _flash(
    states: Sequence[torch.Tensor], bounds: Sequence[torch.Tensor], longest: Sequence[int], scale: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """Causal flash attention over rows of unequal length; the last query of a row sees its last key."""
    attend = torch.ops.aten._flash_attention_forward
    found: Any = attend(*states, *bounds, *longest, 0.0, True, False, scale=scale)
    return found[0], found[1]


def _flash_backward(
    gradient: torch.Tensor,
    found: Sequence[torch.Tensor],
    states: Sequence[torch.Tensor],
    bounds: Sequence[torch.Tensor],
    longest: Sequence[int],
    scale: float,
) -> Sequence[torch.Tensor]:
    back = torch.ops.aten._flash_attention_backward
    nothing_dropped = torch.zeros(2, dtype=torch.uint64, device=gradient.device), gradient.new_empty(0)
    gradients: Any = back(gradient, *states, *found, *bounds, *longest, 0.0, True, *nothing_dropped, scale=scale)
    return list(gradients)
