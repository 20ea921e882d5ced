"""A model of Qwen2.5's shape with random weights, over a vocabulary that holds the home's words."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

import torch
import transformers

from benchmarks.prefix.shapes import SHAPES
from benchmarks.vllm_update.variants import CONTEXT
from groupwise.data.records import Trajectory
from groupwise.data.seeds import seed_of
from groupwise.models.tiny import EXTRA_WORDS, make_word_tokenizer
from groupwise.parts.part import Part

REHEARSAL = {
    **SHAPES["tiny"],
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "vocab_size": 2_000,
}
"""Heads as wide as vLLM wants them on a CPU."""


def list_shapes() -> dict[str, dict[str, int]]:
    """The shapes that can be timed; *tiny* only shows that the script runs."""
    return {**SHAPES, "tiny": REHEARSAL}


def write_model(folder: Path, shape: str, words: tuple[str, ...], *, device: str) -> None:
    """Write model and tokenizer; words without a meaning fill the vocabulary up, so that every id can be sampled."""
    settings = list_shapes()[shape]
    known = dict.fromkeys((*words, *EXTRA_WORDS))
    num_fillers = settings["vocab_size"] - len(make_word_tokenizer(known))
    tokenizer = make_word_tokenizer((*known, *(f"filler{number}" for number in range(num_fillers))))
    assert len(tokenizer) == settings["vocab_size"], "a filler is a word of the home"
    config = transformers.Qwen2Config(
        **settings,
        tie_word_embeddings=True,
        max_position_embeddings=CONTEXT,
        pad_token_id=tokenizer.pad_token_id,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
    )
    torch.manual_seed(0)
    with torch.device(device):
        model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    del model
    if device == "cuda":
        torch.cuda.empty_cache()  # others need the memory more


class DrawnReward(Part, slot="reward"):
    """Pays each response a number drawn for its tokens: a model with random weights earns nothing else, and a step
    without credit would not be computed by the learner."""

    judges: ClassVar[bool] = True

    def __call__(self, trajectory: Trajectory) -> tuple[float, ...]:
        """A number from 0 to 1 a step."""
        return tuple(seed_of(0, *step.response_ids) % 1000 / 1000 for step in trajectory.steps)
