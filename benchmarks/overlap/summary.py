"""Many runs in a few numbers: success at equal environment steps, and seconds of an update."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from groupwise.training.evaluation.summary import Z_95, mean_over_clusters, student_quantile

Record = Mapping[str, Any]
"""A run: its variant and seed, its updates and its evaluations."""
MARKS = 3
"""Numbers of environment steps at which success is compared: so many equal parts of the shortest run."""
BASELINE = "lag 0"


def summarise(records: Sequence[Record], variants: Sequence[str]) -> dict[str, Any]:
    """What success and what seconds the variants had; runs of the variants are paired by their seed."""
    return {
        "success": [compare_success(records, variants, steps) for steps in choose_marks(records)],
        "seconds": {
            variant: summarise_seconds([run for run in records if run["variant"] == variant]) for variant in variants
        },
        "ratios": {variant: compare_seconds(records, variant) for variant in variants if variant != BASELINE},
    }


def choose_marks(records: Sequence[Record]) -> list[int]:
    """Environment steps that every run has an evaluation after, in equal parts."""
    shortest = min(run["evaluations"][-1]["total_steps"] for run in records)
    return [round(shortest * part / MARKS) for part in range(MARKS + 1)]


def compare_success(records: Sequence[Record], variants: Sequence[str], steps: int) -> dict[str, Any]:
    """Success of each variant after some environment steps, and how much more of it than the baseline each other has.

    The interval of a variant is over tasks, with the seeds' rollouts at a task as a cluster. That of a difference is
    Student's over tasks, of the mean over seeds of what the variant solved more at the task. Both speak of further
    tasks, not of further seeds: beside them stands each seed.
    """
    by_variant: dict[str, dict[int, list[float]]] = {
        variant: {
            run["seed"]: interpolate_solved(run["evaluations"], steps) for run in records if run["variant"] == variant
        }
        for variant in variants
    }
    rows = {}
    for variant, by_seed in by_variant.items():
        success, interval = mean_over_clusters(list(zip(*by_seed.values(), strict=True)))
        rows[variant] = {
            "success": success,
            "interval": list(interval),
            "by_seed": {seed: statistics.fmean(solved) for seed, solved in by_seed.items()},
        }
    more = {variant: _compare(by_variant[BASELINE], by_variant[variant]) for variant in variants if variant != BASELINE}
    return {"total_steps": steps, "variants": rows, "more": more}


def interpolate_solved(evaluations: Sequence[Record], steps: int) -> list[float]:
    """How much of each task is solved after some environment steps: between evaluations, on the line that joins them.

    >>> interpolate_solved([{"total_steps": 0, "solved": "01"}, {"total_steps": 100, "solved": "11"}], 25)
    [0.25, 1.0]
    """
    assert evaluations[0]["total_steps"] <= steps <= evaluations[-1]["total_steps"], "no evaluation on either side"
    for before, after in pairwise(evaluations):
        if steps <= after["total_steps"]:
            share = (steps - before["total_steps"]) / (after["total_steps"] - before["total_steps"])
            pairs = zip(before["solved"], after["solved"], strict=True)
            return [(1 - share) * int(first) + share * int(second) for first, second in pairs]
    return [float(digit) for digit in evaluations[-1]["solved"]]


def _compare(baseline: Mapping[int, Sequence[float]], variant: Mapping[int, Sequence[float]]) -> dict[str, Any]:
    """How much more a variant solves than the baseline, seed by seed and in the mean."""
    seeds = sorted(baseline.keys() & variant.keys())
    by_task = [
        statistics.fmean(variant[seed][task] - baseline[seed][task] for seed in seeds)
        for task in range(len(baseline[seeds[0]]))
    ]
    by_seed = {seed: statistics.fmean(variant[seed]) - statistics.fmean(baseline[seed]) for seed in seeds}
    mean = statistics.fmean(by_task)
    half = student_quantile(Z_95, len(by_task) - 1) * statistics.stdev(by_task) / math.sqrt(len(by_task))
    return {"mean": mean, "interval": [mean - half, mean + half], "by_seed": by_seed}


def summarise_seconds(records: Sequence[Record]) -> dict[str, Any]:
    """Medians over the updates of all seeds that are timed, of wall-clock and of processors."""
    updates = [update for run in records for update in list_timed(run["updates"])]
    stages = dict.fromkeys(stage for update in updates for stage in update["stages"])
    return {
        "updates": len(updates),
        "seconds": statistics.median(update["seconds"] for update in updates),
        "stages": {name: statistics.median(update["stages"].get(name, 0.0) for update in updates) for name in stages},
        **{
            side: statistics.median(update[side] for update in updates)
            for side in ("trainer_core_seconds", "engine_core_seconds")
        },
    }


def list_timed(updates: Sequence[Record]) -> Sequence[Record]:
    """All but the first, which is played before anything is learned, and the last, beside which nothing is played."""
    return updates[1:-1]


def compare_seconds(records: Sequence[Record], variant: str) -> dict[str, float]:
    """Medians of ratios variant / baseline, each of two updates that were made one right after the other.

    Wall-clock ratios take what else the machine does out where it lasts longer than two updates; ratios of processor
    seconds hardly depend on it.
    """
    runs = {(run["variant"], run["seed"]): run for run in records}
    pairs = [
        (theirs, ours)
        for (name, seed), run in runs.items()
        if name == BASELINE
        for theirs, ours in zip(list_timed(run["updates"]), list_timed(runs[variant, seed]["updates"]), strict=True)
    ]
    ratios = [ours["seconds"] / theirs["seconds"] for theirs, ours in pairs]
    cores = [count_core_seconds(ours) / count_core_seconds(theirs) for theirs, ours in pairs]
    low, middle, high = statistics.quantiles(ratios, n=4)
    return {
        "seconds": middle,
        "seconds_lower_quartile": low,
        "seconds_upper_quartile": high,
        "core_seconds": statistics.median(cores),
    }


def count_core_seconds(update: Record) -> float:
    """Processor seconds of trainer and engine."""
    return float(update["trainer_core_seconds"] + update["engine_core_seconds"])
