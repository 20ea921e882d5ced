"""Small models of several categories, and requests for them."""

from __future__ import annotations

import random
from typing import Any

import torch
import transformers

from groupwise.engines.engine import Request

VOCABULARY = 120
STOPS = (2, 5, 9, 20, 33)
SHAPE: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
}
WINDOW = 64
"""Tokens that a layer with a sliding window sees."""
CATEGORIES = {
    "llama": lambda: transformers.LlamaForCausalLM(transformers.LlamaConfig(**SHAPE)),
    "qwen2": lambda: transformers.Qwen2ForCausalLM(transformers.Qwen2Config(**SHAPE)),
    "qwen3": lambda: transformers.Qwen3ForCausalLM(transformers.Qwen3Config(**SHAPE, head_dim=16)),
    "mistral": lambda: transformers.MistralForCausalLM(transformers.MistralConfig(**SHAPE, sliding_window=WINDOW)),
    "gemma": lambda: transformers.GemmaForCausalLM(transformers.GemmaConfig(**SHAPE, head_dim=16)),
    "gemma2": lambda: transformers.Gemma2ForCausalLM(
        transformers.Gemma2Config(**SHAPE, head_dim=16, sliding_window=WINDOW, attn_logit_softcapping=2.0)
    ),
}


def family(name: str) -> transformers.PreTrainedModel:
    """A model whose distributions are far from even: its weights are larger than fresh ones."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = CATEGORIES[name]().eval()
    with torch.no_grad():
        for value in model.parameters():
            if value.ndim > 1:
                value.mul_(3)
    return model


def requests(num: int = 40, *, session: bool = False, longest: int = 30) -> list[Request]:
    """Ragged prompts, some of them equal, one of a single token; several temperatures and stop tokens."""
    draw = random.Random(1)
    prompts = [tuple(draw.randrange(3, VOCABULARY) for _ in range(length)) for length in (1, 2, longest)]
    prompts += [tuple(draw.randrange(3, VOCABULARY) for _ in range(draw.randrange(2, longest))) for _ in range(4)]
    return [
        Request(
            prompt_ids=prompts[i % len(prompts)],
            seed=1000 + i,
            max_tokens=1 + i % 19,
            temperature=(1.0, 0.0, 0.5, 1.7)[i % 4],
            stop_ids=STOPS[: i % 6],
            session=f"rollout {i}" if session else None,
        )
        for i in range(num)
    ]
