"""Attention of packs on a GPU, on models as they are: transformers lets an attention function be registered by name.

In half precision it is flash attention over the runs of the forest (`flash_runs`); in float32, and for heads that flash
attention does not know, FlexAttention under block masks (`block_masks`). Without a pack it is `sdpa`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import nn
from torch.nn.attention.flex_attention import BlockMask

from groupwise.batching.pack import Pack
from groupwise.core.errors import ConfigError
from groupwise.models.attention import flash_chains as flash_runs
from groupwise.models.attention.block_masks import TreeKeys, attend_by_blocks, block_inputs, tree_keys, whole_blocks
from groupwise.models.attention.flash_chains import attend_over_runs

NAME = "groupwise_packs"
"""What the attention function is called among transformers' own."""
TAKEN_OVER = ("sdpa", "flex_attention")
"""Implementations it stands in for: without a pack it does what `sdpa` does."""
STRANGE = {"s_aux": "sinks", "position_bias": "position biases", "softcap": "capped scores"}
"""What a model may ask of attention beside a mask, and how it is called."""

_ordinary: list[Callable[..., tuple[torch.Tensor, None]]] = []
"""What it does without a pack, once transformers has been asked for it."""
_masks: WeakKeyDictionary[Pack, TreeKeys] = WeakKeyDictionary()
"""Masks of packs: an update reads a pack several times."""


def inputs(pack: Pack, dtype: torch.dtype, width: int) -> dict[str, Any]:
    """What the body of a model is called with: tokens, positions, and how attention finds its way.

    Args:
        pack: Samples, on a GPU.
        dtype: What attention will be computed in.
        width: How wide its heads are.
    """
    if pack.runs is not None and flash_runs.is_known_to(pack.end.device, dtype, width):
        return {"input_ids": pack.input_ids, "position_ids": pack.position_ids, **pack.runs.inputs}
    if pack not in _masks:
        _masks[pack] = tree_keys(whole_blocks(pack.end))
    return block_inputs(pack.input_ids, pack.position_ids, _masks[pack])


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
    has_runs = settings.get("cu_seq_lens_q") is not None
    if not isinstance(attention_mask, BlockMask) and not has_runs:
        return _ordinary[0](module, query, key, value, attention_mask, scaling=scaling, **settings)
    strange = [name for name in STRANGE if settings.get(name) is not None]
    if strange:
        raise ConfigError(f"the model's attention has {STRANGE[strange[0]]}, which packs do not know; use padded rows")
    query, key, value = _like_autocast(query, key, value)
    if has_runs:
        return attend_over_runs(query, key, value, scaling, settings), None
    return attend_by_blocks(query, key, value, attention_mask, settings.get("key_source"), scaling), None


def register() -> None:
    """Make the attention function known to transformers; its masks, where no pack brings one, are those of `sdpa`."""
    from transformers import AttentionInterface, AttentionMaskInterface
    from transformers.integrations.sdpa_attention import sdpa_attention_forward
    from transformers.masking_utils import sdpa_mask

    _ordinary[:] = [sdpa_attention_forward]
    AttentionInterface.register(NAME, attention)
    AttentionMaskInterface.register(NAME, sdpa_mask)


def _like_autocast(*states: torch.Tensor) -> list[torch.Tensor]:
    """States in the type that autocast computes in: rotary positions may have widened queries and keys, not values."""
    device = states[0].device.type
    dtype = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else states[0].dtype
    return [each.to(dtype) for each in states]
