"""The models that are timed, with random weights, and the arithmetic that training them takes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import transformers

from benchmarks.prefix.layouts import Layouts, pairs
from groupwise.learner.config import LearnerConfig
from groupwise.models.forward import Forward

SHAPES: dict[str, dict[str, int]] = {
    "1.5B": {
        "hidden_size": 1536,
        "num_hidden_layers": 28,
        "num_attention_heads": 12,
        "num_key_value_heads": 2,
        "intermediate_size": 8960,
        "vocab_size": 151_936,
    },
    "0.5B": {
        "hidden_size": 896,
        "num_hidden_layers": 24,
        "num_attention_heads": 14,
        "num_key_value_heads": 2,
        "intermediate_size": 4864,
        "vocab_size": 151_936,
    },
    "tiny": {
        "hidden_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "intermediate_size": 192,
        "vocab_size": 50_000,
    },
}
"""Qwen2.5 by size; *tiny* only shows that the script runs."""

BUDGETS = {"1.5B": 16_384, "0.5B": 32_768, "tiny": 4_096}
"""Tokens of a micro-batch by shape: enough for a large GPU to compute for longer than a host launches."""
UPDATE = 8
"""Raw tokens of an update, in budgets."""


def qwen(shape: str, *, device: str, dtype: torch.dtype, layers: int | None = None) -> Any:
    """A Qwen2.5 of that shape, or the first of its layers, with random weights."""
    settings = dict(SHAPES[shape])
    settings["num_hidden_layers"] = layers or settings["num_hidden_layers"]
    config = transformers.Qwen2Config(**settings, tie_word_embeddings=True, max_position_embeddings=32_768)
    torch.manual_seed(0)
    with torch.device(device):
        net = transformers.AutoModelForCausalLM.from_config(config, dtype=dtype, attn_implementation="sdpa")
    return net.eval()


def llama(*, hidden: int, layers: int, heads: int, kv_heads: int, vocabulary: int) -> Any:
    """A small Llama for a processor."""
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=vocabulary,
        hidden_size=hidden,
        intermediate_size=3 * hidden,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=kv_heads,
        max_position_embeddings=4096,
        attn_implementation="sdpa",
    )
    return transformers.LlamaForCausalLM(config)


def as_trained(net: Any, *, checkpointed: bool, compiled: bool) -> Any:
    """The model as the learner sets it up, with a place for every gradient."""
    Forward(net, LearnerConfig(checkpoint_layers=checkpointed, compile_layers=compiled))
    for weight in net.parameters():
        weight.grad = torch.zeros_like(weight)
    return net


@dataclass(frozen=True, kw_only=True)
class Work:
    """Floating-point operations of a forward and a backward pass over some layouts."""

    useful: float
    """What the mathematics asks for: 6 a weight and token, 12 a pair of tokens, head and layer unit of width."""
    done: float
    """What the chip does: with the head's products, and those of checkpointed layers, computed a second time."""


def work(config: Any, layouts: Layouts, *, checkpointed: bool) -> Work:
    """Count over the tokens really computed, padding and all; the head only where a token is predicted."""
    width = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    query, key = width * config.num_attention_heads, width * config.num_key_value_heads
    weights = config.num_hidden_layers * (
        config.hidden_size * (2 * query + 2 * key) + 3 * config.hidden_size * config.intermediate_size
    )
    tokens = sum(map(len, layouts))
    predicting = sum(len(layout.predictions.node) for layout in layouts)
    body = 2.0 * weights * tokens + 4.0 * query * config.num_hidden_layers * pairs(layouts)
    head = 2.0 * config.vocab_size * config.hidden_size * predicting
    return Work(useful=3 * (body + head), done=(4 if checkpointed else 3) * body + 4 * head)
