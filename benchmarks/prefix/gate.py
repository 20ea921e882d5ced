"""Where sharing begins to pay: one or two rollouts at a task with thoughts of their own, shared without the gate."""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import Any

from benchmarks.prefix.layouts import pack_forced, pack_plain
from benchmarks.prefix.measure import Update, by_turns, clear, train
from benchmarks.prefix.recordings import num_tokens, open_recording

ROLLOUTS = (1, 2)


def little_shared(
    net: Any, data: Path, *, budget: int, device: str, repeats: int, tasks: int | None = None
) -> dict[str, Any]:
    """How much faster shared samples are than packed ones, by rollouts at a task."""
    recorded, gains = open_recording(data, "published", "window 2"), {}
    for rollouts in ROLLOUTS:
        samples = recorded.groups(rollouts=rollouts, tasks=tasks)
        laid = {
            name: Update.of(lay_out(samples, budget), samples, device)
            for name, lay_out in {"forced": pack_forced, "packed": pack_plain}.items()
        }
        for update in laid.values():
            train(net, update)
        works = {name: lambda update=update: (train(net, update), clear(net)) for name, update in laid.items()}
        times = by_turns(works, device=device, repeats=repeats)
        seconds = {name: statistics.median(each) for name, each in times.items()}
        gains[f"rollouts: {rollouts}"] = {
            "raw_tokens": num_tokens(samples),
            "fewer_tokens": laid["packed"].tokens / laid["forced"].tokens,
            "micro_batches": {name: len(update.layouts) for name, update in laid.items()},
            "times_as_fast_as_packed": seconds["packed"] / seconds["forced"],
        }
    return gains
