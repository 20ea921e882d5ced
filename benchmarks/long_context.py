"""Time and memory of an update of the local learner on one GPU, for sequences of 8k to 64k tokens.

    python -m benchmarks.long_context [--shape 1.5B 7B] [--write benchmarks/results/long_context.json]

Random weights; layers in bfloat16 with gradient checkpointing. In the 1.5B shape all weights train, in float32 by
AdamW. The 7B shape trains a LoRA adapter on bfloat16 weights. An update is one micro-batch. *sequence* is a single
prompt with a response of 1,024 tokens; *pack* is eight rollouts of ten turns that share the first quarter. The first
update of each shape is a warm-up. `host_seconds` is the CPU time of laying the samples out.
"""

from __future__ import annotations

import argparse
import gc
import json
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers

from benchmarks.prefix.shapes import SHAPES
from benchmarks.result_file import write_result
from groupwise.data.samples import Sample, count_totals
from groupwise.learner.config import LearnerConfig
from groupwise.learner.local import LocalLearner
from groupwise.losses import PolicyLoss
from groupwise.models.pack import Chains, pack

SEVEN_BILLION = {
    "hidden_size": 3584,
    "num_hidden_layers": 28,
    "num_attention_heads": 28,
    "num_key_value_heads": 4,
    "intermediate_size": 18_944,
    "vocab_size": 152_064,
}
"""Qwen2.5-7B, whose head is not tied to its embeddings."""
LENGTHS = (8_192, 16_384, 32_768, 65_536)
RESPONSE = 1_024
"""Tokens that train."""
ROLLOUTS, TURNS = 8, 10


def draw_tokens(num: int, vocabulary: int, seed: int = 0) -> tuple[int, ...]:
    """Random tokens."""
    return tuple(np.random.default_rng(seed).integers(0, vocabulary, num).tolist())


def make_sample(prompt: tuple[int, ...], response: tuple[int, ...], trajectory: int, step: int) -> Sample:
    """A step whose responses have advantages."""
    return Sample(
        prompt_ids=prompt,
        response_ids=response,
        advantage=1.0 - 2.0 * (trajectory % 2),
        logp_behaviour=(-12.0,) * len(response),
        trajectory=trajectory,
        step=step,
        group=0,
    )


def make_samples(kind: str, length: int, vocabulary: int) -> list[Sample]:
    """An update of one micro-batch with this number of distinct tokens."""
    tokens, trained = draw_tokens(length, vocabulary), min(RESPONSE, length // 2)
    if kind == "sequence":
        return [make_sample(tokens[:-trained], tokens[-trained:], 0, 0)]
    opening, per_turn, sampled = length // 4, (length * 3 // 4) // (ROLLOUTS * TURNS), trained // (ROLLOUTS * TURNS)
    samples = []
    for rollout in range(ROLLOUTS):
        past = tokens[:opening]
        for turn in range(TURNS):
            fresh = draw_tokens(per_turn, vocabulary, seed=1 + rollout * TURNS + turn)
            samples.append(make_sample(past, fresh[:sampled], rollout, turn))
            past += fresh
    return samples


def open_learner(shape: str, device: str) -> LocalLearner:
    """The learner of a shape: all weights train, or at 7B an adapter."""
    is_large = shape == "7B"
    config = transformers.Qwen2Config(
        **{**SHAPES, "7B": SEVEN_BILLION}[shape], tie_word_embeddings=not is_large, max_position_embeddings=131_072
    )
    torch.manual_seed(0)
    dtype = torch.bfloat16 if is_large else torch.float32
    with torch.device(device):
        model = transformers.AutoModelForCausalLM.from_config(config, dtype=dtype)
        if is_large:
            from peft import LoraConfig, get_peft_model

            model = get_peft_model(model, LoraConfig(r=16, lora_alpha=32, target_modules="all-linear"))
    settings = LearnerConfig(
        learning_rate=1e-6,
        token_budget=max(LENGTHS),
        precision="bfloat16" if device == "cuda" else "float32",
        checkpoint_layers=True,
    )
    return LocalLearner(model, PolicyLoss(), settings)


def time_update(learner: LocalLearner, samples: list[Sample], device: str) -> dict[str, float]:
    """Seconds and peak memory of an update."""
    totals = count_totals(samples, max_tokens=RESPONSE)
    gc.collect()
    if device == "cuda":
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
    began = time.perf_counter()
    learner.learn(samples, totals)
    if device == "cuda":
        torch.cuda.synchronize()
    seconds = time.perf_counter() - began
    return {"seconds": seconds, "peak_gib": torch.cuda.max_memory_allocated() / 2**30 if device == "cuda" else 0.0}


def measure_length(learner: LocalLearner, kind: str, length: int, options: argparse.Namespace) -> dict[str, Any] | None:
    """The median of some updates of a length; None if memory does not suffice."""
    samples = make_samples(kind, length, learner.vocabulary_size)
    try:
        updates = [time_update(learner, samples, options.device) for _ in range(options.updates)]
    except torch.OutOfMemoryError:
        learner.optimizer.zero_grad(set_to_none=True)
        gc.collect()
        torch.cuda.empty_cache()
        return None
    seconds = statistics.median(update["seconds"] for update in updates)
    tokens = len(pack(samples, token_budget=length)[0])
    return {
        "tokens": tokens,
        "seconds": seconds,
        "tokens_per_second": tokens / seconds,
        "peak_gib": max(update["peak_gib"] for update in updates),
    }


def time_host(kind: str, length: int) -> dict[str, float]:
    """CPU seconds of laying samples out as packs, and of finding their chains for a GPU."""
    samples = make_samples(kind, length, 150_000)
    began = time.perf_counter()
    packs = pack(samples, token_budget=length)
    laid_out = time.perf_counter()
    for layout in packs:
        Chains.of(layout.position_ids[0].numpy())
    chained = time.perf_counter()
    return {"packs": laid_out - began, "chains": chained - laid_out}


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """All shapes and lengths."""
    kinds = [("sequence", length) for length in options.length] + [("pack", length) for length in options.pack_length]
    shapes: dict[str, Any] = {}
    for shape in options.shape:
        learner, rows = open_learner(shape, options.device), dict[str, Any]()
        measure_length(learner, *kinds[0], options)
        for kind, length in kinds:
            rows[f"{kind} {length}"] = measure_length(learner, kind, length, options)
            print(f"{shape} {kind} {length}: {rows[f'{kind} {length}']}", flush=True)
        shapes[shape] = rows
        del learner
        gc.collect()
        if options.device == "cuda":
            torch.cuda.empty_cache()
    return {"shapes": shapes, "host_seconds": {f"{kind} {length}": time_host(kind, length) for kind, length in kinds}}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", nargs="+", choices=[*SHAPES, "7B"], default=["1.5B", "7B"])
    parser.add_argument("--length", nargs="+", type=int, default=LENGTHS)
    parser.add_argument("--pack-length", nargs="+", type=int, default=[32_768])
    parser.add_argument("--updates", type=int, default=1)
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--write", type=Path)
    options = parser.parse_args()
    result = {
        "command": "python -m benchmarks.long_context " + " ".join(sys.argv[1:]),
        "device": torch.cuda.get_device_name() if options.device == "cuda" else "cpu",
        "versions": {"torch": torch.__version__, "transformers": transformers.__version__},
        **measure(options),
    }
    write_result(result, options.write)
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
