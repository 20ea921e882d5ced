"""Attention of packs on a GPU, on models as they are: transformers lets an attention function be registered by name.

In half precision it is flash attention over the chains of the forest (`flash_chains`); in float32, and for heads that
flash attention does not know, FlexAttention under block masks (`block_masks`). Without a pack it is `sdpa`.
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
from groupwise.models.attention import flash_chains
from groupwise.models.attention.block_masks import (
    TreeKeys,
    attend_under_block_mask,
    fill_last_block,
    find_tree_keys,
    make_block_inputs,
)
from groupwise.models.attention.flash_chains import attend_over_chains

NAME = "groupwise_packs"
"""What the attention function is called among transformers' own."""
TAKEN_OVER = ("sdpa", "flex_attention")
"""Implementations it stands in for: without a pack it does what `sdpa` does."""
UNSUPPORTED = {"s_aux": "sinks", "position_bias": "position biases", "softcap": "capped scores"}
"""What a model may ask of attention that packs do not know, and what it is called in messages."""

_ordinary: list[Callable[..., tuple[torch.Tensor, None]]] = []
"""What attends where no pack is read: the function of transformers, once it has been asked for."""
_masks: WeakKeyDictionary[Pack, TreeKeys] = WeakKeyDictionary()
"""Masks of packs: an update reads a pack several times."""


def make_inputs(pack: Pack, dtype: torch.dtype, width: int) -> dict[str, Any]:
    """What the body of a model is called with: tokens, positions, and how attention finds its way.

    Args:
        pack: Samples, on a GPU.
        dtype: What attention will be computed in.
        width: How wide its heads are.
    """
    if pack.chains is not None and flash_chains.can_attend(pack.end.device, dtype, width):
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
            f"the model's attention has {UNSUPPORTED[unsupported[0]]}, which packs do not know; use padded rows"
        )
    query, key, value = _cast_like_autocast(query, key, value)
    if has_chains:
        return attend_over_chains(query, key, value, scaling, settings), None
    return attend_under_block_mask(query, key, value, attention_mask, settings.get("key_source"), scaling), None


def register() -> None:
    """Make the attention function known to transformers; its masks, where no pack brings one, are those of `sdpa`."""
    from transformers import AttentionInterface, AttentionMaskInterface
    from transformers.integrations.sdpa_attention import sdpa_attention_forward
    from transformers.masking_utils import sdpa_mask

    _ordinary[:] = [sdpa_attention_forward]
    AttentionInterface.register(NAME, attend_to_pack)
    AttentionMaskInterface.register(NAME, sdpa_mask)


def _cast_like_autocast(*states: torch.Tensor) -> list[torch.Tensor]:
    """States in the type that autocast computes in: rotary positions may have widened queries and keys, not values."""
    device = states[0].device.type
    dtype = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else states[0].dtype
    return [state.to(dtype) for state in states]
