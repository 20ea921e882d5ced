"""Runs as they are compared: what a page of several needs of each, read once, and the arms that they belong to.

Runs of an arm differ in their seed, and in nothing that could change what is learnt.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, combinations
from pathlib import Path
from typing import Any

import numpy as np

from groupwise.data.segments import FloatArray
from groupwise.parts.part import flatten_settings
from groupwise.report.charts import choose_window, pick_evenly, smooth_points
from groupwise.report.number_format import shorten_hash
from groupwise.report.overview import STAGES, find_verdict
from groupwise.store.run_folder import SWEEP_PLAN, RunPaths
from groupwise.system.errors import ConfigError, FileError
from groupwise.training.evaluation.over_seeds import (
    Estimate,
    estimate_improvement,
    estimate_interquartile_mean,
    estimate_mean,
)
from groupwise.training.evaluation.summary import RunVerdict, ScoreKind
from groupwise.training.run_reader import RunFolder
from groupwise.training.sweep import read_plan

OWN_SETTINGS = ("seed", "threads", "device", "trackers", "made_by")
"""What runs of one arm may have each for itself."""
MAX_SETTINGS = 3
"""How many settings name an arm."""


@dataclass(frozen=True, kw_only=True)
class RunRecord:
    """One run, as far as it is compared with others."""

    path: Path
    seed: int | None
    """None where its settings do not say."""
    method: str
    settings: Mapping[str, Any]
    verdict: RunVerdict | None
    """Its evaluations; None = there is none yet."""
    metrics: Mapping[str, Mapping[int, float]]
    """By name and update."""
    updates: Sequence[int]

    @property
    def planned(self) -> int | None:
        """How many updates it is to make; None where its settings do not say."""
        training = self.settings.get("training")
        planned = training.get("updates") if isinstance(training, Mapping) else None
        return planned if isinstance(planned, int) else None


@dataclass(frozen=True, kw_only=True)
class ArmRuns:
    """Runs that differ in their seed only."""

    name: str
    runs: tuple[RunRecord, ...]
    """By seed."""


def read_run(path: Path) -> RunRecord:
    """Read what is compared of a run; an error where the folder is none."""
    with RunFolder(path) as folder:
        seed = folder.setting("seed")
        return RunRecord(
            path=path,
            seed=seed if isinstance(seed, int) else None,
            method=folder.describe_method(),
            settings=folder.settings,
            verdict=find_verdict(folder),
            metrics=folder.metrics,
            updates=folder.updates,
        )


def make_arm(name: str, runs: Sequence[RunRecord]) -> ArmRuns:
    """An arm with its runs in the order of their seeds."""
    return ArmRuns(
        name=name, runs=tuple(sorted(runs, key=lambda run: (run.seed is None, run.seed or 0, str(run.path))))
    )


def group_runs(runs: Sequence[RunRecord]) -> list[ArmRuns]:
    """Put runs together that differ in their seed only, in the order in which they were given, and name them.

    An arm has its method's name, then the settings in which the arms differ; where these are many, its folders' names.
    """
    by_settings: dict[str, list[RunRecord]] = {}
    for run in runs:
        by_settings.setdefault(repr(sorted(flatten_shared(run.settings).items())), []).append(run)
    groups = list(by_settings.values())
    names = _name_groups(groups)
    return [make_arm(name, group) for name, group in zip(names, groups, strict=True)]


def _name_groups(groups: Sequence[Sequence[RunRecord]]) -> list[str]:
    methods = [group[0].method for group in groups]
    settings = [flatten_shared(group[0].settings, "algorithm") for group in groups]
    differing = find_differing(settings)
    if len(differing) <= MAX_SETTINGS:
        words = [" ".join(f"{path.rpartition('.')[2]}={flat.get(path)}" for path in differing) for flat in settings]
        names = [f"{method}, {own}" if own else method for method, own in zip(methods, words, strict=True)]
        if len(set(names)) == len(names):
            return names
    return [" + ".join(run.path.resolve().name for run in group) for group in groups]


def flatten_shared(settings: Mapping[str, Any], *own: str) -> dict[str, Any]:
    """The settings that runs of one arm share, flat, without further sections."""
    return flatten_settings({name: value for name, value in settings.items() if name not in (*OWN_SETTINGS, *own)})


def find_differing(settings: Sequence[Mapping[str, Any]]) -> list[str]:
    """The paths of flat settings that have several values."""
    paths = dict.fromkeys(path for flat in settings for path in flat)
    return [path for path in paths if len({repr(flat.get(path)) for flat in settings}) > 1]


# What arms achieved on a panel: interquartile means over seeds with intervals, and which arm does better.

EVEN = 0.5
"""Probability of improvement at which neither arm is better."""
MAX_COMPARED = 12
"""With more arms than this their pairs are not compared: nobody reads hundreds of probabilities."""


@dataclass(frozen=True, kw_only=True)
class SeedResult:
    """What one run achieved."""

    seed: int | None
    folder: str
    updates: int
    """How many it has made."""
    before: float | None
    """At its first evaluation; None where it has only one."""
    final: float
    """At its last evaluation."""
    best: float
    """At its best evaluation. It was chosen by the same panel, so it flatters."""
    best_update: int
    """After which update that was, the first of equals."""


@dataclass(frozen=True, kw_only=True)
class ArmResult:
    """What the runs of an arm achieved."""

    name: str
    seeds: tuple[SeedResult, ...]
    """Its runs that were evaluated, by seed; at least one."""
    final: Estimate
    """Interquartile mean of their last evaluations."""
    best: Estimate
    """Interquartile mean of their best evaluations."""

    @property
    def has_interval(self) -> bool:
        """Whether an interval says anything: drawn anew, one run is always itself."""
        return len(self.seeds) > 1


@dataclass(frozen=True, kw_only=True)
class Improvement:
    """Whether one arm does better than another at the last evaluation."""

    arm: str
    over: str
    probability: Estimate
    """That a run of the one does better than a run of the other, at least 0.5, which says that neither is better."""
    has_interval: bool
    """Whether its interval says anything: both arms have several runs."""


@dataclass(frozen=True, kw_only=True)
class Results:
    """What arms achieved on one panel."""

    split: str
    panel: str
    """The hash of its tasks."""
    tasks: int
    """How many tasks were played."""
    measure: ScoreKind
    """Success, or the mean outcome where the environment does not say what success is."""
    arms: tuple[ArmResult, ...]
    """Arms with at least one evaluated run."""
    improvements: tuple[Improvement, ...]
    """Every pair of arms, the better one first; none where there are very many arms."""
    missing: tuple[str, ...]
    """Runs without an evaluation, which count for nothing."""


def sum_up(arms: Sequence[ArmRuns]) -> Results | None:
    """What the arms achieved; None where no run was evaluated, an error where they played different tasks."""
    evaluated = [(run, run.verdict) for arm in arms for run in arm.runs if run.verdict is not None]
    if not evaluated:
        return None
    check_one_panel(evaluated)
    _, verdict = evaluated[0]
    results = []
    for arm in arms:
        seeds = tuple(_sum_up_run(run, run.verdict) for run in arm.runs if run.verdict is not None)
        final, best = _as_column([seed.final for seed in seeds]), _as_column([seed.best for seed in seeds])
        if seeds:
            estimates = estimate_interquartile_mean(final), estimate_interquartile_mean(best)
            results.append(ArmResult(name=arm.name, seeds=seeds, final=estimates[0], best=estimates[1]))
    pairs = combinations(results, 2) if len(results) <= MAX_COMPARED else ()
    return Results(
        split=verdict.split,
        panel=verdict.after.panel,
        tasks=verdict.after.tasks,
        measure=verdict.measure,
        arms=tuple(results),
        improvements=tuple(_compare(arm, over) for arm, over in pairs),
        missing=tuple(f"{arm.name} seed {run.seed}" for arm in arms for run in arm.runs if run.verdict is None),
    )


def check_one_panel(evaluated: Sequence[tuple[RunRecord, RunVerdict]]) -> None:
    """Refuse runs whose evaluations say nothing of one another."""
    (first, known), *others = evaluated
    for run, verdict in others:
        if verdict.after.panel != known.after.panel:
            raise ConfigError(
                f"{first.path} and {run.path} were evaluated on different tasks ({_name_panel(known)} and "
                f"{_name_panel(verdict)}), so that their success cannot be compared; report them one by one, or "
                "evaluate both on the same panel"
            )
        if verdict.measure != known.measure:
            raise ConfigError(
                f"{first.path} tells {known.measure} and {run.path} tells {verdict.measure}, which cannot be compared; "
                "report them one by one"
            )
    for run, verdict in evaluated:
        if len({score.panel for score in verdict.scores}) > 1:
            raise ConfigError(
                f"{run.path} was evaluated on several panels in its own time, so that it has no curve to compare; "
                "report it by itself"
            )


def _name_panel(verdict: RunVerdict) -> str:
    return f"split {verdict.split}, panel {shorten_hash(verdict.after.panel)}"


def _sum_up_run(run: RunRecord, verdict: RunVerdict) -> SeedResult:
    best = max(verdict.scores, key=lambda score: score.value)
    return SeedResult(
        seed=run.seed,
        folder=run.path.name,
        updates=len(run.updates),
        before=None if verdict.before is None else verdict.before.value,
        final=verdict.after.value,
        best=best.value,
        best_update=best.number,
    )


def _compare(arm: ArmResult, over: ArmResult) -> Improvement:
    """Two arms, the one that does better first; of equals the one that came first."""
    scores = [_as_column([seed.final for seed in result.seeds]) for result in (arm, over)]
    probability = estimate_improvement(*scores)
    if probability.value < EVEN:
        return _compare(over, arm)
    has_interval = arm.has_interval and over.has_interval
    return Improvement(arm=arm.name, over=over.name, probability=probability, has_interval=has_interval)


def _as_column(values: Sequence[float]) -> FloatArray:
    """Scores of one panel, which is one stratum."""
    return np.array(values, dtype=np.float64)[:, None]


# Numbers of arms over what training cost: the mean over seeds with its interval, at updates that all seeds have.
#
# A point is an update. Along another axis it lies where the arm's runs had come to on average: so many environment
# steps, sampled tokens or seconds of training.

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
    num_runs: int
    """How many runs the mean is over."""
    window: int
    """How many updates each run's number was averaged over before; 0 = it is as it was measured."""
    points: tuple[CurvePoint, ...]
    """In the order of updates."""


def find_axes(arms: Sequence[ArmRuns]) -> list[str]:
    """The axes that every run knows its place on; updates are always one."""
    runs = [run for arm in arms for run in arm.runs if run.updates]
    known = [axis for axis in (STEPS, TOKENS, TIME) if all(_sum_costs(run, axis) is not None for run in runs)]
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
    curves = [[(number, of_run[number]) for number in shared] for _, of_run in runs]
    values = [dict(smooth_points(curve, window) if window else curve) for curve in curves]
    costs = {axis: [_sum_costs(run, axis) or {} for run, _ in runs] for axis in axes}
    points = []
    for number, _ in pick_evenly([(number, 0.0) for number in shared], MAX_POINTS):
        places = {}
        for axis, of_axis in costs.items():  # before the first update nothing was spent
            spent = [max((cost for known, cost in sums.items() if known <= number), default=0.0) for sums in of_axis]
            places[axis] = float(np.mean(spent))
        mean = estimate_mean(np.array([[of_run[number]] for of_run in values]), resamples=RESAMPLES)
        points.append(CurvePoint(number=number, places=places, mean=mean))
    return [ArmCurve(arm=place, name=arm.name, num_runs=len(runs), window=window, points=tuple(points))]


def _sum_costs(run: RunRecord, axis: str) -> dict[int, float] | None:
    """What a run had cost after each update; None where that is not known of all."""
    if axis == UPDATES:
        return {number: float(number) for number in run.updates}
    stages = [curve for name, curve in run.metrics.items() if name.startswith(STAGES)]
    curves = stages if axis == TIME else [run.metrics.get(SUMMED[axis], {})]
    if not all(any(number in curve for curve in curves) for number in run.updates):
        return None
    costs = [sum(curve.get(number, 0.0) for curve in curves) for number in run.updates]
    return dict(zip(run.updates, accumulate(costs), strict=True))


# The arms behind folders of runs and of sweeps, as a page of several runs shows them.


def read_arms(folders: Sequence[Path]) -> list[ArmRuns]:
    """The arms of several folders: those of sweeps by their plans, other runs by what they have in common."""
    seen = [folder.resolve() for folder in folders]
    for folder in folders:
        if seen.count(folder.resolve()) > 1:
            raise ConfigError(f"{folder} is given twice; give each run once")
    sweeps = [folder for folder in folders if (folder / SWEEP_PLAN).is_file()]
    arms = [arm for folder in sweeps for arm in _read_sweep(folder, is_alone=len(sweeps) == 1)]
    arms += group_runs([read_run(folder) for folder in folders if folder not in sweeps])
    names = [arm.name for arm in arms]
    for arm in arms:
        if names.count(arm.name) > 1:
            raise ConfigError(f"two arms are called {arm.name!r}; report them one by one")
    return arms


def _read_sweep(folder: Path, *, is_alone: bool) -> list[ArmRuns]:
    """The arms of a sweep that have runs; among several sweeps with the sweep's name before their own."""
    plan = read_plan(folder)
    assert plan is not None, "a folder with a plan has a plan"
    arms = []
    for arm in plan.arms:
        begun = [
            run.folder
            for run in plan.list_runs(folder)
            if run.arm == arm.name and RunPaths(run.folder).journal.is_file()
        ]
        name = arm.name if is_alone else f"{folder.resolve().name}: {arm.name}"
        arms += [make_arm(name, [read_run(path) for path in begun])] if begun else []
    if not arms:
        raise FileError(f"{folder}: none of the sweep's runs has begun; go on with `groupwise sweep`, then report it")
    return arms
