"""What a model is called with to read a pack: its tokens, their positions and a mask of who sees whom.

The mask follows from the interval rule: in pre-order, q sees k where `k <= q < end[k]`.

Axes: L nodes of a pack.
"""

from __future__ import annotations

from typing import Any

import torch

from groupwise.batching.pack import Pack
from groupwise.core.errors import ConfigError
from groupwise.models.attention import on_gpu as gpu_attention
from groupwise.models.attention.on_cpu import TreeMask
from groupwise.models.causal_lm import CausalLM


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


def make_dense_mask(pack: Pack, *, dtype: torch.dtype | None = None) -> torch.Tensor:
    """Which node sees which (1, 1, L, L): true where k is q or an ancestor of q.

    With a `dtype` the mask is additive: 0 where the node is seen, else the lowest number of that type. Every node sees
    itself, so that no row is masked throughout: such a row is NaN in some attention kernels and an average in others.
    """
    node = torch.arange(len(pack), device=pack.end.device)
    seen = (node[None, :] <= node[:, None]) & (node[:, None] < pack.end[None, :])
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
        return TreeMask.of(pack.end) if pack.end.device.type == "cpu" else make_dense_mask(pack)
    if implementation == "eager":
        return make_dense_mask(pack, dtype=dtype)
    raise ConfigError(
        f"the model runs {implementation!r} attention, which takes no mask of ours; load it with "
        "attn_implementation='sdpa' or 'eager', or use padded rows, one a sample"
    )
