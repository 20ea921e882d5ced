"""Many seeds in a few numbers: interquartile means, bootstrap intervals, curves, and steps to a level."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from random import Random
from typing import Any

POINTS = 8
"""Points of a curve: means over so many parts of the run."""
STEPS, TOKENS, SUCCESS, SIGNAL, RESCUED = range(5)
"""Columns of a run's curve."""
SHOWN = {"success": SUCCESS, "with_signal": SIGNAL, "rescued": RESCUED}
"""What is averaged over parts of a run."""
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
    rows = []
    for environment, method in dict.fromkeys((one["environment"], one["method"]) for one in records):
        here = [one for one in records if one["environment"] == environment]
        chosen = [one for one in here if one["method"] == method]
        level = statistics.fmean(last_level(one["curve"]) for one in here if one["method"] == baseline)
        rows.append(
            {
                "environment": environment,
                "method": method,
                "seeds": len(chosen),
                **{name: spread([one[name] for one in chosen]) for name in ("before", "after")},
                "curve": _curve([one["curve"] for one in chosen]),
                "last_quarter": last_quarter([one["curve"] for one in chosen]),
                "level": round(level, 4),
                "steps_to_level": [first_reaching(one["curve"], level, STEPS) for one in chosen],
                "tokens_to_level": [first_reaching(one["curve"], level, TOKENS) for one in chosen],
            }
        )
    return rows


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
    """Means over parts of the runs, each cut by its own end; a part in which some run made no update is left open."""
    points = []
    for part in range(POINTS):
        chosen = [_between(curve, part / POINTS, (part + 1) / POINTS) for curve in curves]
        steps = round(statistics.fmean(curve[-1][STEPS] for curve in curves) * (part + 1) / POINTS)
        points.append({"steps": steps, **{name: _spread_of(chosen, column) for name, column in SHOWN.items()}})
    return points


def last_quarter(curves: Sequence[Sequence[Sequence[float]]]) -> dict[str, Any]:
    """Means over the last quarter of each run."""
    chosen = [_between(curve, 0.75, 1.0) for curve in curves]
    return {name: _spread_of(chosen, column) for name, column in SHOWN.items()}


def _between(curve: Sequence[Sequence[float]], first: float, last: float) -> list[Sequence[float]]:
    end = curve[-1][STEPS]
    return [point for point in curve if first * end < point[STEPS] <= last * end]


def _spread_of(parts: Sequence[Sequence[Sequence[float]]], column: int) -> dict[str, Any] | None:
    if not all(parts):
        return None
    return spread([statistics.fmean(point[column] for point in part) for part in parts])


def compute_censored_median(values: Sequence[float | None]) -> float | None:
    """The median where None is larger than any number; None where it is one of those."""
    ordered = sorted(math.inf if value is None else value for value in values)
    middle = statistics.median(ordered)
    return None if math.isinf(middle) else middle


def report(rows: Sequence[Mapping[str, Any]]) -> None:
    """Print a table a person can read."""
    width = max(len(one["method"]) for one in rows)
    head = f"{'environment':<12} {'method':<{width}} {'before':>7} {'after':>7}  95 % interval   steps to level"
    print(f"{head}  success by eighths of the run | groups with signal")
    for one in rows:
        low, high = one["after"]["interval"]
        before, after = (100 * one[name]["iqm"] for name in ("before", "after"))
        median = compute_censored_median(one["steps_to_level"])
        shown = "never" if median is None else f"{median:.0f}"
        curves = " | ".join(
            " ".join(f"{100 * point[name]['iqm']:3.0f}" if point[name] else "  -" for point in one["curve"])
            for name in ("success", "with_signal")
        )
        print(
            f"{one['environment']:<12} {one['method']:<{width}} {before:6.1f}% {after:6.1f}%"
            f"  {100 * low:5.1f} to {100 * high:5.1f}   {shown:>14}  {curves}"
        )
