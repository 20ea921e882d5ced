"""The processor's part: a small model on made-up and recorded rollouts, and how long the forest takes.

Each layout is timed at several token budgets, and the ratios compare each at its own best one. Recorded are the
household's rollouts, which the demo's model trains on under the demo's history, *full*, and budget.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.prefix.gate import little_shared
from benchmarks.prefix.layouts import LAYOUTS
from benchmarks.prefix.measure import Update, apart, by_turns, clear, gradient, processor_seconds, train
from benchmarks.prefix.recordings import make_up, num_tokens, open_recording
from benchmarks.prefix.shapes import llama
from groupwise.data.samples import Sample
from groupwise.models.forest import merge_sequences
from groupwise.models.pack import pack

BUDGETS = (1024, 4096)
DEMO_BUDGETS = (2048,)
ROLLOUTS = 8
TASKS = 8
COMPARED = ("shared", "packed", "prompts shared", "padded, sorted")
MODELS = {
    "small": "Llama, hidden 128, 4 layers, vocabulary 2000, random weights, float32, sdpa",
    "demo": "Llama, hidden 64, 2 layers, the demo's vocabulary, random weights, float32, sdpa",
}


def sections(data: Path, repeats: int, *, quick: bool = False) -> dict[str, Callable[[], Any]]:
    """What is measured, by name."""
    measurements: dict[str, Callable[[], Any]] = {"forest": lambda: forest_times(repeats, num_tasks=3 if quick else 30)}
    for history in ("full",) if quick else ("window 2", "full"):
        measurements[f"made up, {history}"] = lambda history=history: _compare_made_up(history, repeats)
    for history in ("full",) if quick else ("full", "window 2", "anchored"):
        measurements[f"household, {history}"] = lambda history=history: _household(data, history, repeats)
    if not quick:
        measurements["little shared"] = lambda: _little_shared(data, repeats)
    return measurements


def _compare_made_up(history: str, repeats: int) -> dict[str, Any]:
    net = llama(hidden=128, layers=4, heads=4, kv_heads=2, vocabulary=2_000)
    samples = make_up("small", history, num_tasks=1, rollouts=ROLLOUTS).samples
    return {"model": MODELS["small"], **compare(net, samples, BUDGETS, repeats)}


def _household(data: Path, history: str, repeats: int) -> dict[str, Any]:
    recording = open_recording(data, "household", history)
    samples = recording.groups(rollouts=ROLLOUTS, tasks=TASKS)
    vocabulary = 1 + max(max(sample.token_ids) for sample in samples)
    net = llama(hidden=64, layers=2, heads=4, kv_heads=4, vocabulary=vocabulary)
    result = compare(net, samples, DEMO_BUDGETS, repeats)
    return {"model": MODELS["demo"], "made_up": recording.made_up, **result}


def _little_shared(data: Path, repeats: int) -> dict[str, Any]:
    net = llama(hidden=128, layers=4, heads=4, kv_heads=2, vocabulary=50_000)
    return little_shared(net, data, budget=max(BUDGETS), device="cpu", repeats=repeats, tasks=2)


def compare(net: Any, samples: Sequence[Sample], budgets: Sequence[int], repeats: int) -> dict[str, Any]:
    """Times of all layouts at all budgets, gradients compared first."""
    cases = {
        (name, budget): Update.of(LAYOUTS[name](samples, budget), samples, "cpu")
        for name in COMPARED
        for budget in budgets
    }
    expected = gradient(net, cases["padded, sorted", budgets[0]])
    errors = [apart(gradient(net, update), expected) for update in cases.values()]

    def run(update: Update) -> None:
        train(net, update)
        clear(net)

    times = by_turns(
        {key: lambda update=update: run(update) for key, update in cases.items()}, device="cpu", repeats=repeats
    )
    table = {
        f"{name}/{budget}": {
            "seconds": statistics.median(times[name, budget]),
            "tokens": update.tokens,
            "micro_batches": len(update.layouts),
        }
        for (name, budget), update in cases.items()
    }
    best = {name: min(table[f"{name}/{budget}"]["seconds"] for budget in budgets) for name in COMPARED}
    return {
        "samples": len(samples),
        "raw_tokens": num_tokens(samples),
        "token_ratio": merge_sequences([sample.token_ids for sample in samples]).token_ratio,
        "by_budget": table,
        "best_seconds": best,
        "times_faster_than": {name: best[name] / best["shared"] for name in COMPARED[1:]},
        "same_budget_times_faster_than_packed": {
            str(budget): table[f"packed/{budget}"]["seconds"] / table[f"shared/{budget}"]["seconds"]
            for budget in budgets
        },
        "largest_gradient_error": max(errors),
    }


def forest_times(repeats: int, *, num_tasks: int = 30) -> dict[str, float]:
    """Seconds to merge about a million tokens of full-history rollouts, a tenth and twice of them, and to pack them."""
    twice = make_up("small", "full", num_tasks=2 * num_tasks, rollouts=ROLLOUTS).samples
    large = twice[: len(twice) // 2]
    times_by_name: dict[str, float] = {}
    for name, some in (("tenth", large[: len(large) // 10]), ("million", large), ("twice", twice)):
        sequences = [sample.token_ids for sample in some]
        times = [processor_seconds(lambda sequences=sequences: merge_sequences(sequences)) for _ in range(repeats)]
        times_by_name[f"{name}_tokens"], times_by_name[f"{name}_seconds"] = (
            sum(map(len, sequences)),
            statistics.median(times),
        )
    times_by_name["seconds_per_million_tokens"] = (
        times_by_name["million_seconds"] / times_by_name["million_tokens"] * 1e6
    )
    packing = [processor_seconds(lambda: pack(large, token_budget=8192)) for _ in range(repeats)]
    times_by_name["pack_seconds"] = statistics.median(packing)
    return times_by_name
