"""Many seeds in a few numbers: interquartile means, bootstrap intervals, curves, and steps to a level."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from itertools import pairwise
from random import Random
from typing import Any

POINTS = 8
"""Points of a curve: means over so many parts of the run."""
STEPS, TOKENS, SUCCESS, SIGNAL, RESCUED = range(5)
"""Columns of a run's curve."""
SMOOTH = 5
"""Updates whose mean success is taken for the level: single ones have other tasks each."""

Record = Mapping[str, Any]


def interquartile_mean(values: Sequence[float]) -> float:
    """The mean of the middle half: a quarter of the values is cut off at either end, rounded down."""
    cut = len(values) // 4
    return statistics.fmean(sorted(values)[cut : len(values) - cut])


def bootstrap(values: Sequence[float], *, draws: int = 2000) -> tuple[float, float]:
    """95 % interval of the interquartile mean, seeds drawn with replacement."""
    random = Random(0)
    means = sorted(interquartile_mean(random.choices(values, k=len(values))) for _ in range(draws))
    return means[round(0.025 * draws)], means[round(0.975 * draws) - 1]


def spread(values: Sequence[float]) -> dict[str, Any]:
    """Interquartile mean and interval."""
    return {"iqm": round(interquartile_mean(values), 4), "interval": [round(end, 4) for end in bootstrap(values)]}


def summary(records: Sequence[Record], baseline: str) -> list[dict[str, Any]]:
    """For each environment and method: before, after, curves, and steps and tokens to the baseline's last level."""
    found = []
    for environment, method in dict.fromkeys((one["environment"], one["method"]) for one in records):
        here = [one for one in records if one["environment"] == environment]
        chosen = [one for one in here if one["method"] == method]
        level = statistics.fmean(last_level(one["curve"]) for one in here if one["method"] == baseline)
        found.append(
            {
                "environment": environment,
                "method": method,
                "seeds": len(chosen),
                **{name: spread([one[name] for one in chosen]) for name in ("before", "after")},
                "curve": _curve([one["curve"] for one in chosen]),
                "level": round(level, 4),
                "steps_to_level": [first_reaching(one["curve"], level, STEPS) for one in chosen],
                "tokens_to_level": [first_reaching(one["curve"], level, TOKENS) for one in chosen],
            }
        )
    return found


def last_level(curve: Sequence[Sequence[float]]) -> float:
    """Mean success of the last updates."""
    return statistics.fmean(point[SUCCESS] for point in curve[-SMOOTH:])


def first_reaching(curve: Sequence[Sequence[float]], level: float, column: int) -> float | None:
    """What had been spent when the mean success of some updates in a row first reached a level; None = never."""
    for end in range(SMOOTH, len(curve) + 1):
        if statistics.fmean(point[SUCCESS] for point in curve[end - SMOOTH : end]) >= level:
            return curve[end - 1][column]
    return None


def _curve(curves: Sequence[Sequence[Sequence[float]]]) -> list[dict[str, Any]]:
    """Means over parts of the run, parts of equally many environment steps."""
    end = min(curve[-1][STEPS] for curve in curves)
    cuts = [end * i / POINTS for i in range(POINTS + 1)]
    points = []
    for first, last in pairwise(cuts):
        parts = [[point for point in curve if first < point[STEPS] <= last] for curve in curves]
        if all(parts):
            means = {
                name: spread([statistics.fmean(point[column] for point in part) for part in parts])
                for name, column in (("success", SUCCESS), ("with_signal", SIGNAL), ("rescued", RESCUED))
            }
            points.append({"steps": round(last), **means})
    return points


def report(found: Sequence[Mapping[str, Any]]) -> None:
    """Print a table a person can read."""
    width = max(len(one["method"]) for one in found)
    head = f"{'environment':<12} {'method':<{width}} {'before':>7} {'after':>7}  95 % interval   steps to level"
    print(f"{head}  success by eighths of the run | groups with signal")
    for one in found:
        low, high = one["after"]["interval"]
        before, after = (100 * one[name]["iqm"] for name in ("before", "after"))
        reached = sorted(steps for steps in one["steps_to_level"] if steps is not None)
        shown = f"{statistics.median(reached):.0f} ({len(reached)}/{one['seeds']})" if reached else "never"
        curves = " | ".join(
            " ".join(f"{100 * point[name]['iqm']:3.0f}" for point in one["curve"])
            for name in ("success", "with_signal")
        )
        print(
            f"{one['environment']:<12} {one['method']:<{width}} {before:6.1f}% {after:6.1f}%"
            f"  {100 * low:5.1f} to {100 * high:5.1f}   {shown:>14}  {curves}"
        )
