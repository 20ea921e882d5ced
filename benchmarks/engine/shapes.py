"""The models that are timed: shapes of SmolLM2 and Qwen2.5, with random weights made where they are used."""

from __future__ import annotations

from typing import Any

import torch
import transformers

CONTEXT = 4096
"""Positions that a model has."""
SMOLLM2: dict[str, Any] = {
    "vocab_size": 49152,
    "hidden_size": 576,
    "intermediate_size": 1536,
    "num_hidden_layers": 30,
    "num_attention_heads": 9,
    "num_key_value_heads": 3,
    "rope_theta": 100000.0,
    "tie_word_embeddings": True,
}
QWEN: dict[str, dict[str, Any]] = {
    "1.5B": {
        "vocab_size": 151_936,
        "hidden_size": 1536,
        "intermediate_size": 8960,
        "num_hidden_layers": 28,
        "num_attention_heads": 12,
        "num_key_value_heads": 2,
        "tie_word_embeddings": True,
    },
    "7B": {
        "vocab_size": 152_064,
        "hidden_size": 3584,
        "intermediate_size": 18_944,
        "num_hidden_layers": 28,
        "num_attention_heads": 28,
        "num_key_value_heads": 4,
        "tie_word_embeddings": False,
    },
    "tiny": {
        "vocab_size": 2_000,
        "hidden_size": 64,
        "intermediate_size": 192,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "num_key_value_heads": 2,
        "tie_word_embeddings": True,
    },
}
"""Qwen2.5 by size; *tiny* only shows that the script runs, with heads as wide as vLLM wants them on a CPU."""
NAMES = ("135M", *QWEN)
"""Shapes by name."""


def make_config(shape: str) -> transformers.PreTrainedConfig:
    """The config of a model of that shape."""
    if shape == "135M":
        return transformers.LlamaConfig(**SMOLLM2, max_position_embeddings=CONTEXT)
    return transformers.Qwen2Config(**QWEN[shape], rope_theta=1_000_000.0, max_position_embeddings=CONTEXT)


def make_model(shape: str, device: str) -> transformers.PreTrainedModel:
    """A model of that shape in bfloat16, its weights drawn on the device; the same ones every time."""
    torch.manual_seed(0)
    with torch.device(device):
        model = transformers.AutoModelForCausalLM.from_config(make_config(shape), dtype=torch.bfloat16)
    checked: transformers.PreTrainedModel = model.eval()
    return checked
