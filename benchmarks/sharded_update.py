"""Cost of sharding with one process: an update of the sharded learner at world size 1, compared with the local learner.

    python -m benchmarks.sharded_update [--shape 1.5B] [--write benchmarks/results/sharded_update.json]

Random weights; 16 tasks of 8 rollouts of ten steps, each with 20 sampled and 40 read tokens. The rollouts of a task
share an opening of 300 tokens. Layers are bfloat16, weights float32. The learners alternate updates in one process;
medians after some warm-up updates, which settle the allocator. A learner's peak has two parts: what it holds between
updates (weights and optimizer state), and the most that was allocated beyond that while it learned.
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
from groupwise.learner.config import LearnerConfig, ShardedLearnerConfig
from groupwise.learner.protocol import Learner
from groupwise.losses import PolicyLoss

TASKS, ROLLOUTS, STEPS = 16, 8, 10
OPENING, SAMPLED, READ = 300, 20, 40
GATHERINGS = ("every_pass", "once_a_step")


def make_samples(vocabulary: int, *, tasks: int, steps: int) -> list[Sample]:
    """The steps of an update; each prompt is the full dialogue so far."""
    rng = np.random.default_rng(0)

    def draw(num: int) -> tuple[int, ...]:
        return tuple(rng.integers(0, vocabulary, num).tolist())

    samples = []
    for task in range(tasks):
        opening = draw(OPENING)
        for rollout in range(ROLLOUTS):
            past = opening
            for step in range(steps):
                response = draw(SAMPLED)
                samples.append(
                    Sample(
                        prompt_ids=past,
                        response_ids=response,
                        advantage=float(rng.normal()),
                        logp_behaviour=(-12.0,) * SAMPLED,
                        trajectory=task * ROLLOUTS + rollout,
                        step=step,
                        group=task,
                    )
                )
                past += response + draw(READ)
    return samples


def list_kinds(options: argparse.Namespace) -> dict[str, LearnerConfig]:
    """The settings of each learner that is timed."""
    settings: dict[str, Any] = {"learning_rate": 1e-6, "token_budget": options.token_budget}
    settings["precision"] = "bfloat16" if options.device == "cuda" else "float32"
    settings |= {"checkpoint_layers": options.checkpoint_layers, "compile_layers": options.compile_layers}
    sharded = {f"sharded, {gather}": ShardedLearnerConfig(**settings, gather=gather) for gather in options.gather}
    return {"local": LearnerConfig(**settings), **sharded}


def open_learner(part: LearnerConfig, shape: str, device: str) -> Learner:
    """A learner with its own copy of the same weights."""
    config = transformers.Qwen2Config(**SHAPES[shape], tie_word_embeddings=True)
    torch.manual_seed(0)
    with torch.device(device):
        model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    return part.open(model, PolicyLoss(), temperature=1.0)


def read_allocated(device: str) -> int:
    """Bytes of tensors on a GPU, after synchronizing; 0 on a CPU."""
    gc.collect()
    if device != "cuda":
        return 0
    torch.cuda.synchronize()
    return torch.cuda.memory_allocated()


def count_device_allocations(device: str) -> int:
    """Number of device allocations, which stop the GPU; cached memory costs nothing."""
    return int(torch.cuda.memory_stats()["num_device_alloc"]) if device == "cuda" else 0


def time_update(learner: Learner, samples: list[Sample], device: str) -> dict[str, float]:
    """Seconds of an update, the memory that it allocated, and how much of that it kept."""
    totals = count_totals(samples, max_tokens=SAMPLED)
    before, num_before = read_allocated(device), count_device_allocations(device)
    if device == "cuda":
        torch.cuda.reset_peak_memory_stats()
    began = time.perf_counter()
    learned = learner.learn(samples, totals)
    if device == "cuda":
        torch.cuda.synchronize()
    seconds = time.perf_counter() - began
    peak = torch.cuda.max_memory_allocated() - before if device == "cuda" else 0
    return {
        "seconds": seconds,
        "peak_above_gib": peak / 2**30,
        "held_gib": (read_allocated(device) - before) / 2**30,
        "device_allocations": count_device_allocations(device) - num_before,
        "grad_norm": learned.metrics["learner/grad_norm"],
    }


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Let the learners take turns."""
    learners, held = dict[str, Learner](), dict[str, float]()
    for name, part in list_kinds(options).items():
        before = read_allocated(options.device)
        learners[name] = open_learner(part, options.shape, options.device)
        held[name] = (read_allocated(options.device) - before) / 2**30
    samples = make_samples(SHAPES[options.shape]["vocab_size"], tasks=options.tasks, steps=options.steps)
    turns: dict[str, list[dict[str, float]]] = {name: [] for name in learners}
    for number in range(options.warm + options.updates):
        for name, learner in learners.items():
            turns[name].append(time_update(learner, samples, options.device))
            print(f"update {number} {name}: {turns[name][-1]}", flush=True)
    variants = {name: summarise(updates, held[name], warm=options.warm) for name, updates in turns.items()}
    seconds = {name: [update["seconds"] for update in updates[options.warm :]] for name, updates in turns.items()}
    ratios = {
        name: {
            "seconds": statistics.median(
                own / local for own, local in zip(seconds[name], seconds["local"], strict=True)
            ),
            "peak": variants[name]["peak_gib"] / variants["local"]["peak_gib"]
            if variants["local"]["peak_gib"]
            else None,
        }
        for name in turns
        if name != "local"
    }
    return {"variants": variants, "ratios": ratios, "updates": turns}


def summarise(updates: list[dict[str, float]], held: float, *, warm: int) -> dict[str, float]:
    """The median of a learner's counted updates, and its peak; the first update creates the optimizer state."""
    first, counted = updates[0], updates[warm:]
    held += sum(update["held_gib"] for update in updates[:warm])
    return {
        "seconds": statistics.median(update["seconds"] for update in counted),
        "held_gib": held,
        "peak_gib": held + max(update["peak_above_gib"] for update in counted),
        "first_grad_norm": first["grad_norm"],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", choices=list(SHAPES), default="1.5B")
    parser.add_argument("--updates", type=int, default=7)
    parser.add_argument("--warm", type=int, default=8)
    parser.add_argument("--tasks", type=int, default=TASKS)
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--token-budget", type=int, default=16384)
    parser.add_argument("--checkpoint-layers", action="store_true")
    parser.add_argument("--compile-layers", action="store_true")
    parser.add_argument("--gather", nargs="+", choices=GATHERINGS, default=GATHERINGS)
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--write", type=Path)
    options = parser.parse_args()
    result = {
        "command": "python -m benchmarks.sharded_update " + " ".join(sys.argv[1:]),
        "device": torch.cuda.get_device_name() if options.device == "cuda" else "cpu",
        "versions": {"torch": torch.__version__, "transformers": transformers.__version__},
        "shape": options.shape,
        **measure(options),
    }
    write_result(result, options.write)
    print(json.dumps(result["variants"], indent=1), json.dumps(result["ratios"], indent=1))


if __name__ == "__main__":
    main()
