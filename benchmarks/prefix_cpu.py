"""Prefix-shared training on a CPU: forward and backward of a small Llama on step-wise rollouts, against rows.

    python -m benchmarks.prefix_cpu [--threads 2] [--write benchmarks/results/prefix_cpu.json]

One task, 8 attempts of 12 steps. *Window* shows the agent its last two steps, *full* all of them. Three layouts of the
same samples, interleaved, medians reported; gradients of all layouts are compared first.

- *shared*: each distinct prefix once (`pack`);
- *packed*: samples side by side without padding, under the same block-wise attention (`pack(share=False)`);
- *padded*: rows of one width, as many to a micro-batch as the budget holds, sorted by length, so that little is padded.

With one thread, processor time is measured, which other work on the machine does not change; with more, wall time. Each
layout is timed at several token budgets; the ratios compare each at its own best one. The forest is timed on about
a million tokens, and on a tenth of them.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers

from groupwise.batching import Pack, PaddedRows, column, merge, pack, padded, token_logps
from groupwise.core.sample import Sample

VOCABULARY = 2_000
ATTEMPTS, STEPS = 8, 12
INSTRUCTION, OBSERVATION, RESPONSE = 60, 30, 12
"""Tokens of the task's instruction, and of an observation and a response on average."""
BUDGETS = (1024, 4096)
HISTORIES: dict[str, int | None] = {"window": 2, "full": None}

IDLE = Sample(prompt_ids=(0,), response_ids=(), advantage=0.0, trajectory=0, step=0, group=0)
"""Keeps a place in a list of samples and is in no layout."""

Layouts = Sequence[Pack | PaddedRows]


def rollouts(history: int | None, *, num_tasks: int = 1, seed: int = 0) -> list[Sample]:
    """Step-wise samples: instruction, the last `history` steps (None = all), the observation; then the response."""
    draw = np.random.default_rng(seed)

    def words(mean: int) -> tuple[int, ...]:
        return tuple(draw.integers(0, VOCABULARY, size=int(draw.integers(mean // 2, mean * 3 // 2 + 1))).tolist())

    samples = []
    for task in range(num_tasks):
        instruction, first = words(INSTRUCTION), words(OBSERVATION)
        for attempt in range(ATTEMPTS):
            steps: list[tuple[int, ...]] = []
            for step in range(STEPS):
                observation, response = words(OBSERVATION) if step else first, words(RESPONSE)
                shown = steps if history is None else steps[-history:]
                samples.append(
                    Sample(
                        prompt_ids=sum(shown, instruction) + observation,
                        response_ids=response,
                        advantage=float(draw.normal()),
                        trajectory=task * ATTEMPTS + attempt,
                        step=step,
                        group=task,
                    )
                )
                steps.append(observation + response)
    return samples


def model() -> transformers.LlamaForCausalLM:
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=128,
        intermediate_size=384,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=4096,
        attn_implementation="sdpa",
    )
    return transformers.LlamaForCausalLM(config)


def shared(samples: Sequence[Sample], budget: int) -> Layouts:
    return pack(samples, token_budget=budget)


def packed(samples: Sequence[Sample], budget: int) -> Layouts:
    return pack(samples, token_budget=budget, share=False)


def rows(samples: Sequence[Sample], budget: int) -> Layouts:
    """Rows of similar length together, so that padding is not what is measured."""
    found: list[PaddedRows] = []
    ordered = sorted(samples, key=lambda sample: -len(sample.token_ids))
    low = 0
    while low < len(ordered):
        high = low + max(1, budget // len(ordered[low].token_ids))
        idle = [sample if low <= number < high else IDLE for number, sample in enumerate(ordered)]
        found += padded(idle)
        low = high
    return found


LAYOUTS: dict[str, Callable[[Sequence[Sample], int], Layouts]] = {"shared": shared, "packed": packed, "padded": rows}


def train(net: transformers.LlamaForCausalLM, layouts: Layouts, samples: Sequence[Sample]) -> None:
    """Gradients of all micro-batches, as an update computes them."""
    for layout in layouts:
        logp, _ = token_logps(net, layout)
        (logp * column(layout, [sample.advantage for sample in samples])).sum().backward()


def gradient(net: transformers.LlamaForCausalLM) -> torch.Tensor:
    found = torch.cat([parameter.grad.flatten() for parameter in net.parameters()])
    net.zero_grad()
    return found


def seconds(work: Callable[[], object]) -> float:
    clock = time.process_time if torch.get_num_threads() == 1 else time.perf_counter
    start = clock()
    work()
    return clock() - start


def compare(history: int | None, repeats: int) -> dict[str, Any]:
    samples, net = rollouts(history), model()
    by_length = sorted(samples, key=lambda sample: -len(sample.token_ids))
    cases = {}
    for name, lay in LAYOUTS.items():
        ordered = by_length if name == "padded" else samples
        for budget in BUDGETS:
            cases[name, budget] = (lay(samples, budget), ordered)
    expected: torch.Tensor | None = None
    errors = {}
    for key, (layouts, ordered) in cases.items():
        train(net, layouts, ordered)
        found = gradient(net)
        expected = found if expected is None else expected
        errors[key] = float((found - expected).norm() / expected.norm())
    times: dict[tuple[str, int], list[float]] = {key: [] for key in cases}
    for _ in range(repeats):
        for key, (layouts, ordered) in cases.items():
            times[key].append(seconds(lambda layouts=layouts, ordered=ordered: train(net, layouts, ordered)))
            net.zero_grad()
    raw = sum(len(sample.token_ids) for sample in samples)
    table = {
        f"{name}/{budget}": {
            "seconds": statistics.median(times[name, budget]),
            "tokens": sum(map(len, layouts)),
            "micro_batches": len(layouts),
        }
        for (name, budget), (layouts, _) in cases.items()
    }
    best = {name: min(table[f"{name}/{budget}"]["seconds"] for budget in BUDGETS) for name in LAYOUTS}
    return {
        "samples": len(samples),
        "raw_tokens": raw,
        "token_ratio": merge([sample.token_ids for sample in samples]).token_ratio,
        "by_budget": table,
        "best_seconds": best,
        "shared_times_faster_than_packed": best["packed"] / best["shared"],
        "shared_times_faster_than_padded": best["padded"] / best["shared"],
        "same_budget_times_faster_than_packed": {
            str(budget): table[f"packed/{budget}"]["seconds"] / table[f"shared/{budget}"]["seconds"]
            for budget in BUDGETS
        },
        "largest_gradient_error": max(errors.values()),
    }


def forest_times(repeats: int) -> dict[str, float]:
    """Seconds to merge 100,000 and about 1,000,000 tokens of full-history rollouts, and to pack the latter."""
    large = rollouts(None, num_tasks=30)
    small = large[: len(large) // 10]
    found = {}
    for name, some in (("tenth", small), ("million", large)):
        sequences = [sample.token_ids for sample in some]
        tokens = sum(map(len, sequences))
        taken = statistics.median(seconds(lambda sequences=sequences: merge(sequences)) for _ in range(repeats))
        found[f"{name}_tokens"], found[f"{name}_seconds"] = tokens, taken
    found["seconds_per_million_tokens"] = found["million_seconds"] / found["million_tokens"] * 1e6
    found["pack_seconds"] = statistics.median(seconds(lambda: pack(large, token_budget=8192)) for _ in range(repeats))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--write", type=Path, help="write the result as JSON")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    result: dict[str, Any] = {
        "command": f"python -m benchmarks.prefix_cpu --threads {options.threads} --repeats {options.repeats}",
        "clock": "processor time" if options.threads == 1 else "wall time",
        "machine": f"{platform.machine()}, {len(os.sched_getaffinity(0))} cores, Python {platform.python_version()}, "
        f"torch {torch.__version__}, transformers {transformers.__version__}",
        "model": "Llama, hidden 128, 4 layers, vocabulary 2000, random weights, float32, sdpa",
        "forest": forest_times(options.repeats),
    }
    for name, history in HISTORIES.items():
        result[name] = compare(history, options.repeats)
    print(json.dumps(result, indent=2))
    if options.write:
        options.write.parent.mkdir(parents=True, exist_ok=True)
        options.write.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
