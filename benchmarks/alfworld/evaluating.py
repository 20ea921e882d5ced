"""Success on ALFWorld's two task sets, rollout by rollout, and what it amounts to."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from benchmarks.alfworld.settings import SPLITS, TEMPERATURES, Sizes
from groupwise.training.evaluation.summary import Z_95, mean_over_clusters, student_quantile

Rows = Sequence[Mapping[str, Any]]
"""Rollouts: split, task, type, seed, temperature, success, steps."""


def play_task_sets(run: Any, sizes: Sizes, seed: int, temperature: float) -> list[dict[str, Any]]:
    """Play both task sets once with the engine's weights, each rollout with the official number of steps."""
    from groupwise.rollout.environment_runner import open_host
    from groupwise.training.evaluation.evaluate import evaluate_run

    env = run.config.env.model_copy(update={"max_steps": sizes.evaluation_steps})
    rows: list[dict[str, Any]] = []
    with open_host(env, workers=0, timeout=30.0) as host:
        longer = replace(run, config=run.config.model_copy(update={"env": env}), host=host)
        for name, split in SPLITS.items():
            settings = run.config.evaluation.model_copy(update={"split": split, "temperature": temperature})
            evaluation = evaluate_run(longer, seeds=(seed,), settings=settings, write=False)
            asked = {"split": name, "seed": seed, "temperature": temperature}
            rows += [
                {**asked, "task": row.task, "type": row.tags, "success": row.success, "steps": row.steps}
                for row in evaluation.rows
            ]
    return rows


def play_in_turn(
    run: Any,
    sizes: Sizes,
    before: Rows,
    *,
    settings: Sequence[tuple[int, float]],
    until: float,
    keep: Callable[[Rows], None],
) -> None:
    """Play both task sets with each seed and temperature that was not played before, while time allows; once always."""
    rows, seconds = list(before), 0.0
    for seed, temperature in settings:
        if any((row["seed"], row["temperature"]) == (seed, temperature) for row in rows):
            continue
        if rows and time.time() + 1.2 * seconds > until:
            return
        began = time.time()
        rows += play_task_sets(run, sizes, seed, temperature)
        seconds = time.time() - began
        keep(rows)


def at_temperature(rows: Rows, temperature: float) -> Rows:
    """The rollouts that were played at a temperature."""
    return [row for row in rows if row["temperature"] == temperature]


def summarise_rows(rows: Rows) -> dict[str, Any]:
    """By task set: success with its interval, steps, and success by type of task."""
    return {
        split: {
            **_share(chosen),
            "seeds": len({row["seed"] for row in chosen}),
            "steps": round(statistics.fmean(row["steps"] for row in chosen), 2),
            "by_type": {
                kind: _share([row for row in chosen if row["type"] == kind])
                for kind in sorted({row["type"] for row in chosen})
            },
        }
        for split in SPLITS
        if (chosen := [row for row in rows if row["split"] == split])
    }


def describe_briefly(rows: Rows) -> str:
    """Success by temperature and task set, in a line."""
    return "; ".join(
        f"temperature {temperature}: {split} {100 * one['success']:.1f} %"
        for temperature in TEMPERATURES
        for split, one in summarise_rows(at_temperature(rows, temperature)).items()
    )


def _share(rows: Rows) -> dict[str, Any]:
    scores = _by_task(rows)
    success, (low, high) = mean_over_clusters(list(scores.values()))
    return {"success": round(success, 4), "interval": [round(low, 4), round(high, 4)], "tasks": len(scores)}


def _by_task(rows: Rows) -> dict[str, list[float]]:
    scores: dict[str, list[float]] = {}
    for row in rows:
        scores.setdefault(row["task"], []).append(float(row["success"] or 0.0))
    return scores


def compare_pairs(first: Rows, second: Rows) -> dict[str, Any]:
    """By task set: how much more often the second succeeds at the same tasks, with Student's 95 % interval over
    tasks."""
    by_split = {}
    for split in SPLITS:
        one, other = (_by_task([row for row in rows if row["split"] == split]) for rows in (first, second))
        both = sorted(one.keys() & other.keys())
        if len(both) < 2:
            continue
        differences = [statistics.fmean(other[task]) - statistics.fmean(one[task]) for task in both]
        mean = statistics.fmean(differences)
        half = student_quantile(Z_95, len(both) - 1) * statistics.stdev(differences) / math.sqrt(len(both))
        by_split[split] = {"difference": round(mean, 4), "interval": [round(mean - half, 4), round(mean + half, 4)]}
    return by_split
