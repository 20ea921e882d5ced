"""Attention masks from the interval rule: in pre-order, q sees k where `k <= q < end[k]`.

Axes: L nodes of a pack.
"""

from __future__ import annotations

import torch

from groupwise.batching.pack import Pack
from groupwise.batching.tree_attention import TreeMask
from groupwise.core.errors import ConfigError


def dense_mask(pack: Pack, *, dtype: torch.dtype | None = None) -> torch.Tensor:
    """Which node sees which (1, 1, L, L): true where k is q or an ancestor of q.

    With a `dtype` the mask is additive: 0 where the node is seen, else the lowest number of that type. Every node sees
    itself, so that no row is masked throughout: such a row is NaN in some attention kernels and an average in others.
    """
    node = torch.arange(len(pack), device=pack.end.device)
    seen = (node[None, :] <= node[:, None]) & (node[:, None] < pack.end[None, :])
    if dtype is not None:
        seen = torch.zeros(seen.shape, dtype=dtype, device=seen.device).masked_fill_(~seen, torch.finfo(dtype).min)
    return seen[None, None]


def attention_mask(pack: Pack, *, implementation: str, dtype: torch.dtype) -> torch.Tensor:
    """The mask in the form that a Hugging Face attention implementation takes as `attention_mask`.

    A four-dimensional mask is used as it is, in every layer. `sdpa` reads booleans, on a CPU those of a mask that is
    never written out; `eager` adds whatever it is given to the scores, so that booleans would add 1 to what is seen and
    hide nothing.
    """
    if implementation == "sdpa":
        return TreeMask.of(pack.end) if pack.end.device.type == "cpu" else dense_mask(pack)
    if implementation == "eager":
        return dense_mask(pack, dtype=dtype)
    raise ConfigError(
        f"the model runs {implementation!r} attention, which takes no mask of ours; load it with "
        "attn_implementation='sdpa' or 'eager', or use padded rows, one a sample"
    )
