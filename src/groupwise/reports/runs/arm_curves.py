"""Numbers of arms over what training cost: the mean over seeds with its interval, at updates that all seeds have.

A point is an update. Along another axis it lies where the arm's runs had come to on average: so many environment steps,
sampled tokens or seconds of training.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

import numpy as np

from groupwise.evaluation.over_seeds import Estimate, estimate_mean
from groupwise.reports.run.overview import STAGES
from groupwise.reports.run.page.curves import choose_window, pick_evenly, smooth_points
from groupwise.reports.runs.read_runs import ArmRuns, RunRecord

UPDATES, STEPS, TOKENS, TIME = "updates", "steps", "tokens", "time"
SUMMED = {STEPS: "rollout/total_steps", TOKENS: "rollout/total_tokens"}
"""Metrics whose sums are an axis."""
MAX_POINTS = 60
"""Points of a curve, each of which has an interval."""
RESAMPLES = 2000
"""For the interval of a point: enough for a band that is two pixels wide."""


@dataclass(frozen=True, kw_only=True)
class CurvePoint:
    """The runs of an arm after an update."""

    number: int
    """Which update."""
    places: Mapping[str, float]
    """Where it lies along each axis."""
    mean: Estimate
    """Mean over the arm's runs, with its interval."""


@dataclass(frozen=True, kw_only=True)
class ArmCurve:
    """A number of an arm over updates."""

    arm: int
    """The place of the arm among all, which gives it its colour."""
    name: str
    """What the arm is called."""
    num_runs: int
    """How many runs the mean is over."""
    window: int
    """How many updates each run's number was averaged over before; 0 = it is as it was measured."""
    points: tuple[CurvePoint, ...]
    """In the order of updates."""


def find_axes(arms: Sequence[ArmRuns]) -> list[str]:
    """The axes that every run knows its place on; updates are always one."""
    runs = [run for arm in arms for run in arm.runs if run.updates]
    known = [axis for axis in (STEPS, TOKENS, TIME) if all(_find_costs(run, axis) is not None for run in runs)]
    return [UPDATES, *known] if runs else [UPDATES]


def make_metric_curves(arms: Sequence[ArmRuns], name: str, axes: Sequence[str]) -> list[ArmCurve]:
    """A metric of every arm that has it."""
    curves = []
    for place, arm in enumerate(arms):
        runs = [(run, run.metrics[name]) for run in arm.runs if run.metrics.get(name)]
        curves += _make_curve(place, arm, runs, axes, is_noisy=True)
    return curves


def make_score_curves(arms: Sequence[ArmRuns], axes: Sequence[str]) -> list[ArmCurve]:
    """The evaluations of every arm that has some."""
    curves = []
    for place, arm in enumerate(arms):
        runs = [
            (run, {score.number: score.value for score in run.verdict.scores})
            for run in arm.runs
            if run.verdict is not None
        ]
        curves += _make_curve(place, arm, runs, axes, is_noisy=False)
    return curves


def _make_curve(
    place: int,
    arm: ArmRuns,
    runs: Sequence[tuple[RunRecord, Mapping[int, float]]],
    axes: Sequence[str],
    *,
    is_noisy: bool,
) -> list[ArmCurve]:
    """The curve of an arm over the updates that all of its runs have; nothing where there are none."""
    shared = sorted(set.intersection(*(set(values) for _, values in runs))) if runs else []
    if not shared:
        return []
    window = choose_window(len(shared)) if is_noisy else 0
    values = [dict(_smooth([(number, of_run[number]) for number in shared], window)) for _, of_run in runs]
    costs = {axis: [_sum_costs(run, axis) for run, _ in runs] for axis in axes}
    points = [
        CurvePoint(
            number=number,
            places={
                axis: float(np.mean([_read_cost(sums, number) for sums in of_axis])) for axis, of_axis in costs.items()
            },
            mean=estimate_mean(np.array([[of_run[number]] for of_run in values]), resamples=RESAMPLES),
        )
        for number, _ in pick_evenly([(number, 0.0) for number in shared], MAX_POINTS)
    ]
    return [ArmCurve(arm=place, name=arm.name, num_runs=len(runs), window=window, points=tuple(points))]


def _smooth(points: Sequence[tuple[int, float]], window: int) -> Sequence[tuple[int, float]]:
    return smooth_points(points, window) if window else points


def _find_costs(run: RunRecord, axis: str) -> dict[int, float] | None:
    """What each update of a run cost; None where that is not known of all."""
    if axis == UPDATES:
        return dict.fromkeys(run.updates, 1.0)
    stages = [curve for name, curve in run.metrics.items() if name.startswith(STAGES)]
    curves = stages if axis == TIME else [run.metrics.get(SUMMED[axis], {})]
    if not all(any(number in curve for curve in curves) for number in run.updates):
        return None
    return {number: sum(curve.get(number, 0.0) for curve in curves) for number in run.updates}


def _sum_costs(run: RunRecord, axis: str) -> dict[int, float]:
    """What a run had cost after each update."""
    if axis == UPDATES:
        return {number: float(number) for number in run.updates}
    costs = _find_costs(run, axis) or {}
    return dict(zip(costs, accumulate(costs.values()), strict=True))


def _read_cost(sums: Mapping[int, float], number: int) -> float:
    """What had been spent after an update; before the first, nothing."""
    return max((spent for known, spent in sums.items() if known <= number), default=0.0)
