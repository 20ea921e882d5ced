"""Tiny random-weight models of every family we claim, made from configurations alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import transformers
from torch import nn

VOCABULARY = 29
SHAPE = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 64,
    "initializer_range": 0.05,  # attention has something to say, and rounding is not multiplied from layer to layer
    "bos_token_id": 0,
    "eos_token_id": 1,
    "pad_token_id": None,
}
GROUPED = SHAPE | {"num_key_value_heads": 2, "head_dim": 8}


def _llama(attention: str, **changes: object) -> nn.Module:
    return _build(transformers.LlamaForCausalLM, transformers.LlamaConfig(**GROUPED | changes), attention)


def _qwen2(attention: str, **changes: object) -> nn.Module:
    return _build(transformers.Qwen2ForCausalLM, transformers.Qwen2Config(**GROUPED | changes), attention)


def _qwen3(attention: str, **changes: object) -> nn.Module:
    return _build(transformers.Qwen3ForCausalLM, transformers.Qwen3Config(**GROUPED | changes), attention)


def _gemma2(attention: str, **changes: object) -> nn.Module:
    # Small caps, so that both bend: logits and scores are smaller here than in a trained model.
    settings = GROUPED | {"sliding_window": 64, "final_logit_softcapping": 0.5, "attn_logit_softcapping": 0.5}
    return _build(transformers.Gemma2ForCausalLM, transformers.Gemma2Config(**settings | changes), attention)


def _gemma3(attention: str, **changes: object) -> nn.Module:
    settings = GROUPED | {"sliding_window": 64}
    return _build(transformers.Gemma3ForCausalLM, transformers.Gemma3TextConfig(**settings | changes), attention)


def _gpt_neox(attention: str, **changes: object) -> nn.Module:
    return _build(transformers.GPTNeoXForCausalLM, transformers.GPTNeoXConfig(**SHAPE | changes), attention)


def _granite(attention: str, **changes: object) -> nn.Module:
    settings = GROUPED | {"logits_scaling": 3.0}
    return _build(transformers.GraniteForCausalLM, transformers.GraniteConfig(**settings | changes), attention)


CATEGORIES: dict[str, Callable[..., nn.Module]] = {
    "llama": _llama,
    "qwen2": _qwen2,
    "qwen3": _qwen3,
    "gemma2": _gemma2,
    "gemma3": _gemma3,
    "gpt_neox": _gpt_neox,
    "granite": _granite,
}

EAGER_ONLY = ("gemma2",)
"""Families whose attention soft-cap the other implementations do not compute."""


def build(family: str, attention: str | None = None, **changes: object) -> nn.Module:
    """The same weights each time."""
    torch.manual_seed(0)
    return CATEGORIES[family](attention or ("eager" if family in EAGER_ONLY else "sdpa"), **changes)


def run_layers_again(model: Any, **options: bool) -> None:
    """Have layers run again in the backward pass; transformers 5.23 renamed the method and warns of the old name."""
    enable = getattr(model, "activation_checkpointing_enable", None) or model.gradient_checkpointing_enable
    enable(options or None)


def _build(kind: Callable[..., nn.Module], config: transformers.PreTrainedConfig, attention: str) -> nn.Module:
    config._attn_implementation = attention
    return kind(config).eval()
