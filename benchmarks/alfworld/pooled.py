"""ALFWorld over seeds: what GRPO, GiGPO and HGPO reach, and how far a few runs of each can tell them apart.

    python -m benchmarks.alfworld.pooled [RECORD ...] [--write benchmarks/results/alfworld_pooled.json]

A RECORD is the `alfworld.json` of a seed, or a folder of such files; without any, benchmarks/results/alfworld_seeds.
Seeds of a method are pooled where the hash of their settings is equal; records of other methods may lie beside them
when all else agrees (`seed_records.SHARED`). Whatever does not fit is refused and named.

At each mark of environment steps, on valid_seen, valid_unseen and all games of both: interquartile mean over seeds with
a 95 % bootstrap interval, the probability that a run of one method does better than one of another (Agarwal et al.
2021, arXiv:2108.13264), and the mean difference by seed with Student's 95 % interval, since the methods of a seed go on
from one start. `sampled` is the same at the last mark, at temperature 1; `training` is success on training games, where
rollouts are sampled at that temperature too, over the second half of the steps; `variants` names the method of methods
that are one with other settings; `levels` has the share of all steps that each depth of history compares, mean over
seeds, where records have it. Runs are drawn whole, so that the two task sets of a run stay together. Where fewer than
four seeds were evaluated, no interval is given. `coverage` says, by number of seeds, how often the bootstrap's
intervals hold the truth where runs are normal. The picture is drawn by `pooled_plot`.
"""

from __future__ import annotations

import argparse
import math
import statistics
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.alfworld.seed_records import (
    BOTH,
    SHARED,
    TASK_SETS,
    TRAINING,
    Records,
    check_records,
    collect_sampled_scores,
    collect_scores,
    collect_training_scores,
    list_marks,
    list_methods,
    read_seed_records,
    score_task_sets,
)
from benchmarks.alfworld.settings import METHODS, TEMPERATURES, VARIANTS
from benchmarks.alfworld.summary import count_hours
from benchmarks.result_file import describe_command, write_json
from groupwise.system.errors import ConfigError
from groupwise.training.evaluation.over_seeds import Estimate, estimate_improvement, estimate_interquartile_mean
from groupwise.training.evaluation.summary import Z_95, student_quantile

SEEDS = Path(__file__).parents[1] / "results" / "alfworld_seeds"
MIN_SEEDS = 4
"""From which on intervals are given: with fewer, a bootstrap only repeats the extremes."""
COVERAGE_SEEDS = (3, 5, 10)
"""Numbers of seeds for which it is tried how often intervals hold the truth."""
COVERAGE_TRIALS = 2_000
"""Made-up sets of seeds whose intervals are checked against the truth, and resamples of each."""

Scores = Mapping[int, Mapping[str, Any]]
"""Of one method at a mark, by seed: success by task set, and the steps made."""


def pool(records: Records, *, command: str) -> dict[str, Any]:
    """What all records amount to, mark by mark."""
    check_records(records)
    first = next(iter(records.values()))
    at_marks = {steps: collect_scores(records, steps) for steps in list_marks(first)}
    methods, seeds = list_methods(records), sorted({record["seed"] for record in records.values()})
    starts = {record["seed"]: score_task_sets(record["success"]["warm_start"]) for record in records.values()}
    sampled_starts = {
        record["seed"]: score_task_sets(success)
        for record in records.values()
        if (success := record.get("success_at_1", {}).get("warm_start"))
    }
    return {
        "command": command,
        **{section: first[section] for section in SHARED},
        "seeds": seeds,
        "variants": {method: VARIANTS[method].method for method in methods if method in VARIANTS},
        "hours": _sum_hours(records),
        "records": [_describe_record(name, record) for name, record in records.items()],
        "coverage": {str(number): simulate_coverage(number) for number in COVERAGE_SEEDS},
        "after_imitation": _describe_scores(starts),
        "marks": [
            {"steps": steps, **_describe_methods(scores, methods)} for steps, scores in at_marks.items() if scores
        ],
        "sampled": {
            "temperature": TEMPERATURES[1],
            **({"after_imitation": _describe_scores(sampled_starts)} if sampled_starts else {}),
            **_describe_methods(collect_sampled_scores(records), methods),
        },
        "training": _describe_training(collect_training_scores(records), methods),
        "curves": {method: _describe_curves(records, method) for method in methods},
        **_describe_levels(records, methods),
    }


def _describe_levels(records: Records, methods: Sequence[str]) -> dict[str, Any]:
    """By method and depth, the shares of steps that `share_of_levels` counts, mean over seeds."""
    described = {}
    for method in methods:
        found = [
            levels
            for record in records.values()
            if (levels := record["methods"].get(method, {}).get("levels")) is not None
        ]
        if found:
            described[method] = [
                {name: round(statistics.fmean(level[name] for level in same), 4) for name in same[0]}
                for same in zip(*found, strict=True)
            ]
    return {"levels": described} if described else {}


def _describe_methods(scores: Mapping[str, Scores], methods: Sequence[str]) -> dict[str, Any]:
    """Every method that has scores, and each two of them."""
    scored = {method: scores[method] for method in methods if method in scores}
    return {
        "methods": {method: _describe_scores(by_seed) for method, by_seed in scored.items()},
        "comparisons": _compare_methods(scored),
    }


def _describe_training(scores: Mapping[str, Scores], methods: Sequence[str]) -> dict[str, Any]:
    """Success while training by method, and what each is ahead of GRPO by, where that was measured."""
    base, described = scores.get(METHODS[0], {}), {}
    for method in (method for method in methods if method in scores):
        seeds = sorted(scores[method])
        described[method] = {"seeds": seeds, **_describe_task_set([scores[method][seed][TRAINING] for seed in seeds])}
        if method != METHODS[0] and (common := sorted(scores[method].keys() & base.keys())):
            described[method]["over_grpo"] = _compare_task_set(scores[method], base, common, TRAINING)
    return described


def _describe_record(name: str, record: Mapping[str, Any]) -> dict[str, Any]:
    """Where a seed's numbers come from."""
    kept = ("seed", "settings", "commit", "hours", "command", "note")
    return {
        "file": name,
        "methods": list(record["methods"]),
        **{part: record[part] for part in kept if part in record},
    }


def _sum_hours(records: Records) -> float:
    """Hours of one device, or of one core; a start that several records go on from counts once."""
    starts = {
        record["start"].get("seed", record["seed"]): record["start"] for record in reversed(list(records.values()))
    }
    made = sum(
        count_hours({}, record["methods"], side_by_side=record["engine"] is not None) for record in records.values()
    )
    return round(made + sum(count_hours(start, {}) for start in starts.values()), 3)


def _describe_scores(scores: Scores) -> dict[str, Any]:
    """One method at one mark: its seeds, and by task set their interquartile mean."""
    seeds = sorted(scores)
    made = [scores[seed]["total_steps"] for seed in seeds if "total_steps" in scores[seed]]
    return {
        "seeds": seeds,
        **({"total_steps": made} if made else {}),
        **{task_set: _describe_task_set([scores[seed][task_set] for seed in seeds]) for task_set in TASK_SETS},
    }


def _describe_task_set(by_seed: Sequence[float]) -> dict[str, Any]:
    return {**_round(estimate_interquartile_mean(_as_column(by_seed)), len(by_seed)), "by_seed": list(by_seed)}


def _compare_methods(scores: Mapping[str, Scores]) -> list[dict[str, Any]]:
    """Each two methods over the seeds that both have; the later against the earlier."""
    compared = []
    for second, first in combinations(scores, 2):
        seeds = sorted(scores[first].keys() & scores[second].keys())
        if seeds:
            task_sets = {
                task_set: _compare_task_set(scores[first], scores[second], seeds, task_set) for task_set in TASK_SETS
            }
            compared.append({"first": first, "second": second, "seeds": seeds, **task_sets})
    return compared


def _compare_task_set(first: Scores, second: Scores, seeds: Sequence[int], task_set: str) -> dict[str, Any]:
    values, bases = ([scores[seed][task_set] for seed in seeds] for scores in (first, second))
    differences = [round(value - base, 4) for value, base in zip(values, bases, strict=True)]
    better = estimate_improvement(_as_column(values), _as_column(bases))
    return {"difference": describe_differences(differences), "improvement": _round(better, len(seeds))}


def describe_differences(differences: Sequence[float]) -> dict[str, Any]:
    """Mean of what one method is ahead by at the same seeds, with Student's 95 % interval.

    >>> describe_differences([0.1, 0.3, 0.0, 0.2])
    {'value': 0.15, 'interval': [-0.0539, 0.3539], 'by_seed': [0.1, 0.3, 0.0, 0.2]}
    """
    mean, num = statistics.fmean(differences), len(differences)
    interval = None
    if num >= MIN_SEEDS:
        half = student_quantile(Z_95, num - 1) * statistics.stdev(differences) / math.sqrt(num)
        interval = [round(mean - half, 4), round(mean + half, 4)]
    return {"value": round(mean, 4), "interval": interval, "by_seed": list(differences)}


def _describe_curves(records: Records, method: str) -> dict[str, Any]:
    """By seed, everything that was evaluated: steps made and success by task set, from the start on."""
    curves = {}
    for record in records.values():
        if method in record["methods"]:
            start = {"total_steps": 0, **score_task_sets(record["success"]["warm_start"])}
            later = [
                {"total_steps": evaluation["total_steps"], **score_task_sets(evaluation["success"])}
                for evaluation in record["methods"][method]["by_mark"]
            ]
            curves[str(record["seed"])] = [start, *later]
    return curves


@cache
def simulate_coverage(num_seeds: int) -> float:
    """Share of the bootstrap's 95 % intervals that hold the truth where runs are drawn from a normal distribution."""
    drawn = np.random.default_rng(0).normal(size=(COVERAGE_TRIALS, num_seeds))
    estimates = [estimate_interquartile_mean(_as_column(runs), resamples=COVERAGE_TRIALS) for runs in drawn]
    return round(statistics.fmean(estimate.low <= 0 <= estimate.high for estimate in estimates), 3)


def _as_column(values: Sequence[float]) -> Any:
    return np.array(values, dtype=np.float64)[:, None]


def _round(estimate: Estimate, num_seeds: int) -> dict[str, Any]:
    interval = [round(estimate.low, 4), round(estimate.high, 4)] if num_seeds >= MIN_SEEDS else None
    return {"value": round(estimate.value, 4), "interval": interval}


def report(pooled: Mapping[str, Any]) -> str:
    """A table a person can read: all games, mark by mark, and each two methods at the last mark."""
    device = "device" if pooled["engine"] else "core"
    lines = [f"all games of both task sets, {len(pooled['seeds'])} seeds, {pooled['hours']:.2f} hours of one {device}"]
    rows = [("after imitation", pooled["after_imitation"])]
    for mark in pooled["marks"]:
        rows += [(f"{mark['steps']:,} steps, {method}", row) for method, row in mark["methods"].items()]
    lines += [f"  {words:<28} {_format_share(row[BOTH])}  seeds {row['seeds']}" for words, row in rows]
    for pair in pooled["marks"][-1]["comparisons"] if pooled["marks"] else []:
        more, better = pair[BOTH]["difference"], pair[BOTH]["improvement"]
        lines.append(
            f"  {pair['first']} over {pair['second']}: {_format_share(more)} by seed, better with probability "
            f"{better['value']:.2f} {better['interval'] or ''}"
        )
    for method, levels in pooled.get("levels", {}).items():
        shares = ", ".join(
            f"{level['depth']:g}: {100 * level['compared']:.1f} ({100 * level['unequal']:.1f})" for level in levels
        )
        lines.append(f"  {method}: % of steps compared (with unequal returns) at depth {shares}")
    return "\n".join(lines)


def _format_share(case: Mapping[str, Any]) -> str:
    ends = "" if case["interval"] is None else " ({:.1f} to {:.1f})".format(*(100 * end for end in case["interval"]))
    return f"{100 * case['value']:.1f} %{ends}"


def main(arguments: Sequence[str] | None = None) -> None:
    """Pool the records, print a table, and write what is asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("records", type=Path, nargs="*", metavar="RECORD", help="files or folders")
    parser.add_argument("--write", type=Path, help="write the result as JSON")
    options = parser.parse_args(arguments)
    command = describe_command("benchmarks.alfworld.pooled", [str(path) for path in options.records])
    pooled = pool(read_seed_records(options.records or [SEEDS]), command=command)
    print(report(pooled))
    write_json(pooled, options.write)


if __name__ == "__main__":
    try:
        main()
    except ConfigError as error:
        sys.exit(str(error))
