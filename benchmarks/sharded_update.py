"""What shares cost where there is one process: an update of the sharded learner at world 1 against the local learner.

    python -m benchmarks.sharded_update [--shape 1.5B] [--write benchmarks/results/sharded_update.json]

Random weights; 16 tasks of 8 attempts of ten steps, each with 20 sampled and 40 read tokens on an opening of 300 that a
task's attempts share; layers in bfloat16, weights in float32. The learners take turns, an update each, in one process;
medians after a warm update. A learner's peak is the most that was allocated while it learnt, less what the others held.
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
from groupwise.batching import count_totals
from groupwise.core.sample import Sample
from groupwise.losses import PolicyLoss
from groupwise.training.learner.config import LearnerConfig
from groupwise.training.learner.protocol import Learner
from groupwise.training.learner.sharded.config import ShardedLearnerConfig

TASKS, ATTEMPTS, STEPS = 16, 8, 10
OPENING, SAMPLED, READ = 300, 20, 40


def make_samples(vocabulary: int, *, tasks: int, steps: int) -> list[Sample]:
    """The steps of an update, each prompt the whole dialogue before it."""
    rng = np.random.default_rng(0)

    def draw(num: int) -> tuple[int, ...]:
        return tuple(rng.integers(0, vocabulary, num).tolist())

    samples = []
    for task in range(tasks):
        opening = draw(OPENING)
        for attempt in range(ATTEMPTS):
            past = opening
            for step in range(steps):
                response = draw(SAMPLED)
                samples.append(
                    Sample(
                        prompt_ids=past,
                        response_ids=response,
                        advantage=float(rng.normal()),
                        logp_behaviour=(-12.0,) * SAMPLED,
                        trajectory=task * ATTEMPTS + attempt,
                        step=step,
                        group=task,
                    )
                )
                past += response + draw(READ)
    return samples


def open_learners(shape: str, device: str, token_budget: int) -> dict[str, Learner]:
    """A learner of each kind, on weights of its own that are the same."""
    settings: dict[str, Any] = {"learning_rate": 1e-6, "token_budget": token_budget}
    settings["precision"] = "bfloat16" if device == "cuda" else "float32"
    kinds = {
        "local": LearnerConfig(**settings),
        "sharded, every pass": ShardedLearnerConfig(**settings, gather="every_pass"),
        "sharded, once a step": ShardedLearnerConfig(**settings, gather="once_a_step"),
    }
    config = transformers.Qwen2Config(**SHAPES[shape], tie_word_embeddings=True)
    learners = {}
    for name, part in kinds.items():
        torch.manual_seed(0)
        with torch.device(device):
            model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32)
        learners[name] = part.open(model, PolicyLoss(), temperature=1.0)
    return learners


def time_update(learner: Learner, samples: list[Sample], device: str) -> dict[str, float]:
    """Make an update: its seconds, and what it allocated beyond what there was."""
    totals = count_totals(samples, max_tokens=SAMPLED)
    gc.collect()
    before = 0
    if device == "cuda":
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
    began = time.perf_counter()
    learned = learner.learn(samples, totals)
    peak = 0
    if device == "cuda":
        torch.cuda.synchronize()
        peak = torch.cuda.max_memory_allocated() - before
    seconds = time.perf_counter() - began
    return {"seconds": seconds, "peak_above": peak / 2**30, "grad_norm": learned.metrics["learner/grad_norm"]}


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Let the learners take turns."""
    learners = open_learners(options.shape, options.device, options.token_budget)
    samples = make_samples(SHAPES[options.shape]["vocab_size"], tasks=options.tasks, steps=options.steps)
    turns: dict[str, list[dict[str, float]]] = {name: [] for name in learners}
    for _ in range(1 + options.updates):
        for name, learner in learners.items():
            turns[name].append(time_update(learner, samples, options.device))
    counted = {name: updates[1:] for name, updates in turns.items()}
    arms = {
        name: {
            "seconds": statistics.median(update["seconds"] for update in updates),
            "peak_above_gib": max(update["peak_above"] for update in updates),
            "first_grad_norm": turns[name][0]["grad_norm"],
        }
        for name, updates in counted.items()
    }
    ratios = {
        name: [own["seconds"] / local["seconds"] for own, local in zip(counted[name], counted["local"], strict=True)]
        for name in counted
        if name != "local"
    }
    return {
        "arms": arms,
        "ratios": {name: {"median": statistics.median(values), "by_pair": values} for name, values in ratios.items()},
        "updates": turns,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", choices=list(SHAPES), default="1.5B")
    parser.add_argument("--updates", type=int, default=5)
    parser.add_argument("--tasks", type=int, default=TASKS)
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--token-budget", type=int, default=16384)
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
    print(json.dumps(result["arms"], indent=1), json.dumps(result["ratios"], indent=1))


if __name__ == "__main__":
    main()
