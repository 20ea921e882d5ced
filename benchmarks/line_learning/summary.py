"""Many runs in a few numbers: held-out success at equal sampled tokens, and at equal rollouts that train."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from itertools import pairwise
from random import Random
from typing import Any

from benchmarks.learning.summary import bootstrap, interquartile_mean
from benchmarks.line_learning.variants import BASELINE

POINTS = 10
"""Points of a curve after its beginning, in equal parts of what the shortest run spent."""
DRAWS = 2000

Record = Mapping[str, Any]


def summarise(records: Sequence[Record], variants: Sequence[str]) -> dict[str, Any]:
    """Success of each variant at equal tokens and at equal rollouts, over the seeds that every variant has."""
    evaluated = [record for record in records if record["evaluations"]]
    seeds_of = {
        variant: {record["seed"] for record in evaluated if record["variant"] == variant} for variant in variants
    }
    seeds = sorted(set.intersection(*seeds_of.values()))
    chosen = [record for record in evaluated if record["seed"] in seeds]
    if not seeds:
        return {"seeds": []}
    return {
        "seeds": seeds,
        "by_tokens": compare_variants(chosen, variants, "tokens"),
        "by_episodes": compare_variants(chosen, variants, "episodes"),
        "core_seconds": {
            variant: round(
                statistics.fmean(record["core_seconds"] for record in chosen if record["variant"] == variant), 1
            )
            for variant in variants
        },
    }


def compare_variants(records: Sequence[Record], variants: Sequence[str], unit: str) -> dict[str, Any]:
    """Success of the variants where each has spent the same: as much as the run that spent least of it in the end."""
    common = min(record["evaluations"][-1][unit] for record in records)
    marks = [common * part / POINTS for part in range(POINTS + 1)]
    curves: dict[str, dict[int, list[float]]] = {variant: {} for variant in variants}
    for record in sorted(records, key=lambda record: int(record["seed"])):
        rows = record["evaluations"]
        curves[record["variant"]][record["seed"]] = [interpolate(rows, unit, "success", mark) for mark in marks]
    rows = {}
    for variant in variants:
        of_variant = [record["evaluations"] for record in records if record["variant"] == variant]
        last, mean = (
            {variant: list(map(take, curves[variant].values())) for variant in variants}
            for take in (take_last, take_mean)
        )
        rows[variant] = {
            "at_end": compare_with_baseline(last[variant], last[BASELINE]),
            "over_curve": compare_with_baseline(mean[variant], mean[BASELINE]),
            "curve": [describe_spread(values) for values in zip(*curves[variant].values(), strict=True)],
            **{
                f"{name}_at_end": round(
                    statistics.fmean(interpolate(rows, unit, name, common) for rows in of_variant), 1
                )
                for name in ("update", "episodes", "tokens", "probe_tokens")
            },
        }
    return {"common": common, "marks": [round(mark) for mark in marks], "variants": rows}


def choose_rate(records: Sequence[Record]) -> dict[str, Any]:
    """The learning rate whose run did best on the way, as far as all of a variant's went; and how well each did."""
    common = min(record["tokens"] for record in records)
    marks = [common * part / POINTS for part in range(POINTS + 1)]
    means = {
        record["learning_rate"]: take_mean(
            [interpolate(record["evaluations"], "tokens", "success", mark) for mark in marks]
        )
        for record in records
    }
    tried = {f"{rate:g}": round(mean, 4) for rate, mean in means.items()}
    return {"chosen": max(means, key=lambda rate: means[rate]), "tokens": common, "success_over_curve": tried}


def interpolate(rows: Sequence[Record], unit: str, name: str, mark: float) -> float:
    """A number of a run where it has spent so much: between evaluations, on the line that joins them.

    >>> interpolate([{"tokens": 0, "success": 0.2}, {"tokens": 100, "success": 0.6}], "tokens", "success", 25)
    0.3
    """
    for before, after in pairwise(rows):
        if mark <= after[unit]:
            share = (mark - before[unit]) / (after[unit] - before[unit])
            return float(before[name] + share * (after[name] - before[name]))
    return float(rows[-1][name])


def take_last(curve: Sequence[float]) -> float:
    """Success at the end."""
    return curve[-1]


def take_mean(curve: Sequence[float]) -> float:
    """Mean success on the way: the area below the curve, by trapezia."""
    return statistics.fmean((before + after) / 2 for before, after in pairwise(curve))


def describe_spread(values: Sequence[float]) -> dict[str, Any]:
    """Interquartile mean over seeds, and its 95 % interval."""
    return {"iqm": round(interquartile_mean(values), 4), "interval": [round(end, 4) for end in bootstrap(values)]}


def compare_with_baseline(values: Sequence[float], baseline: Sequence[float]) -> dict[str, Any]:
    """Success over seeds, how much more than the baseline's at the same seed, and how likely more at any two seeds."""
    more = [value - other for value, other in zip(values, baseline, strict=True)]
    return {
        **describe_spread(values),
        "by_seed": [round(value, 4) for value in values],
        "more_than_baseline": describe_spread(more),
        "probability_of_improvement": describe_improvement(values, baseline),
    }


def describe_improvement(values: Sequence[float], baseline: Sequence[float]) -> dict[str, Any]:
    """The probability that a run of the variant ends above one of the baseline (Agarwal et al. 2021), with its
    interval."""
    random = Random(0)
    draws = sorted(
        share_above(random.choices(values, k=len(values)), random.choices(baseline, k=len(baseline)))
        for _ in range(DRAWS)
    )
    interval = [draws[round(0.025 * DRAWS)], draws[round(0.975 * DRAWS) - 1]]
    return {"share": share_above(values, baseline), "interval": interval}


def share_above(values: Sequence[float], others: Sequence[float]) -> float:
    """Share of pairs in which the first is larger; equal ones count half.

    >>> share_above([0.5, 0.9], [0.5, 0.7])
    0.625
    """
    above = [1.0 if value > other else 0.5 if value == other else 0.0 for value in values for other in others]
    return statistics.fmean(above)


def report(summary: Mapping[str, Any]) -> str:
    """A table a person can read."""
    if not summary["seeds"]:
        return "no seed has been begun by every variant yet"
    lines = []
    for unit in ("tokens", "episodes"):
        compared = summary[f"by_{unit}"]
        lines.append(f"held-out success at {compared['common']:,.0f} {unit}, {len(summary['seeds'])} seeds")
        for variant, row in compared["variants"].items():
            end, mean = row["at_end"], row["over_curve"]
            low, high = (100 * bound for bound in end["interval"])
            curve = " ".join(f"{100 * point['iqm']:3.0f}" for point in row["curve"])
            lines.append(
                f"  {variant:<11} {100 * end['iqm']:5.1f} % [{low:.1f}, {high:.1f}]  over the curve "
                f"{100 * mean['iqm']:5.1f} %  better than {BASELINE} "
                f"{mean['probability_of_improvement']['share']:.2f}  {row['update_at_end']:.0f} updates | {curve}"
            )
    return "\n".join(lines)
