"""The attention function that transformers knows by name: what it hands to which kernel, and what it refuses."""

from __future__ import annotations

import pytest
import torch

from groupwise.models import attention_gpu as gpu_attention
from groupwise.models.attention_gpu import BLOCK, find_tree_keys
from groupwise.system.errors import ConfigError


@pytest.mark.parametrize("setting", ["s_aux", "position_bias", "softcap"])
def test_attention_that_masks_do_not_govern_is_refused(setting: str) -> None:
    states = torch.zeros(1, 1, BLOCK, 8)
    mask = find_tree_keys(torch.full((BLOCK,), BLOCK)).mask
    with pytest.raises(ConfigError, match=r"sinks|position biases|capped scores"):
        gpu_attention.attend_to_pack(torch.nn.Identity(), states, states, states, mask, **{setting: torch.zeros(1)})


def test_without_a_pack_attention_is_that_of_sdpa() -> None:
    torch.manual_seed(0)
    query, key, value = torch.randn(3, 2, 4, 6, 8)
    layer = torch.nn.Identity()
    layer.is_causal = True  # type: ignore[assignment]
    gpu_attention.register()
    attended, _ = gpu_attention.attend_to_pack(layer, query, key, value, None, scaling=0.3)
    expected = torch.nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True, scale=0.3)
    torch.testing.assert_close(attended, expected.transpose(1, 2))
