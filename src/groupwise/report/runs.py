"""The comparison of several runs: their data, their variants, and statistics over seeds.

Runs of one variant (variant) differ in their seed, and in nothing else that changes the result.
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
from groupwise.training.evaluation.summary import RunVerdict, ScoreKind, describe_task_set
from groupwise.training.run_reader import RunFolder
from groupwise.training.sweep import read_plan

OWN_SETTINGS = ("seed", "threads", "device", "trackers", "made_by")
"""Settings that may differ between runs of one variant."""
MAX_SETTINGS = 3
"""Largest number of settings in a variant's name."""


@dataclass(frozen=True, kw_only=True)
class RunRecord:
    """The data of one run that is compared."""

    path: Path
    seed: int | None
    method: str
    settings: Mapping[str, Any]
    verdict: RunVerdict | None
    """Its evaluations; None = there are none yet."""
    metrics: Mapping[str, Mapping[int, float]]
    """By name and update."""
    updates: Sequence[int]

    @property
    def planned(self) -> int | None:
        """The planned number of updates; None = unknown."""
        training = self.settings.get("training")
        planned = training.get("updates") if isinstance(training, Mapping) else None
        return planned if isinstance(planned, int) else None


@dataclass(frozen=True, kw_only=True)
class VariantRuns:
    """Runs that differ in their seed only."""

    name: str
    runs: tuple[RunRecord, ...]
    """By seed."""


def read_run(path: Path) -> RunRecord:
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


def make_variant(name: str, runs: Sequence[RunRecord]) -> VariantRuns:
    return VariantRuns(
        name=name, runs=tuple(sorted(runs, key=lambda run: (run.seed is None, run.seed or 0, str(run.path))))
    )


def group_runs(runs: Sequence[RunRecord]) -> list[VariantRuns]:
    """Group runs that differ in their seed only, in the given order, and name the groups.

    The name is the method plus the settings that differ between groups; if these are too many, the folders' names.
    """
    by_settings: dict[str, list[RunRecord]] = {}
    for run in runs:
        by_settings.setdefault(repr(sorted(flatten_shared(run.settings).items())), []).append(run)
    groups = list(by_settings.values())
    names = _name_groups(groups)
    return [make_variant(name, group) for name, group in zip(names, groups, strict=True)]


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
    """The settings that runs of one variant share, flat, without the sections in `own`."""
    return flatten_settings({name: value for name, value in settings.items() if name not in (*OWN_SETTINGS, *own)})


def find_differing(settings: Sequence[Mapping[str, Any]]) -> list[str]:
    paths = dict.fromkeys(path for flat in settings for path in flat)
    return [path for path in paths if len({repr(flat.get(path)) for flat in settings}) > 1]


# Results on a task set: interquartile means over seeds with intervals, and comparisons of variants.

EVEN = 0.5
"""Probability of improvement if no variant is better."""
MAX_COMPARED = 12
"""With more variants, their pairs are not compared."""


@dataclass(frozen=True, kw_only=True)
class SeedResult:
    """The results of one run."""

    seed: int | None
    folder: str
    updates: int
    before: float | None
    """At its first evaluation; None if it has only one."""
    final: float
    best: float
    """At its best evaluation. It is too high, since it was chosen on the same tasks."""
    best_update: int
    """The update before it; of equal ones the first."""


@dataclass(frozen=True, kw_only=True)
class VariantResult:
    """The results of a variant."""

    name: str
    seeds: tuple[SeedResult, ...]
    """Its evaluated runs, by seed; at least one."""
    final: Estimate
    """Interquartile mean of their last evaluations."""
    best: Estimate
    """Interquartile mean of their best evaluations."""

    @property
    def has_interval(self) -> bool:
        """A single run has no interval."""
        return len(self.seeds) > 1


@dataclass(frozen=True, kw_only=True)
class Improvement:
    """The comparison of two variants at the last evaluation."""

    variant: str
    over: str
    probability: Estimate
    """Probability that a run of `variant` is better than a run of `over`: at least 0.5, which means no difference."""
    has_interval: bool
    """Whether both variants have several runs."""


@dataclass(frozen=True, kw_only=True)
class Results:
    """The results of all variants on one task set."""

    name: str
    split: str
    task_set: str
    tasks: int
    measure: ScoreKind
    """Success, or the mean final score if the environment does not define success."""
    variants: tuple[VariantResult, ...]
    """Variants with at least one evaluated run."""
    improvements: tuple[Improvement, ...]
    """Every pair of variants, the better one first; empty if there are too many variants."""
    missing: tuple[str, ...]
    """Runs without an evaluation; they do not count."""


def sum_up(variants: Sequence[VariantRuns]) -> Results | None:
    """The results; None if no run was evaluated, an error if the task sets differ."""
    evaluated = [(run, run.verdict) for variant in variants for run in variant.runs if run.verdict is not None]
    if not evaluated:
        return None
    check_one_task_set(evaluated)
    _, verdict = evaluated[0]
    results = []
    for variant in variants:
        seeds = []
        for run in variant.runs:
            if run.verdict is not None:
                peak = max(run.verdict.scores, key=lambda score: score.value)
                seeds.append(
                    SeedResult(
                        seed=run.seed,
                        folder=run.path.name,
                        updates=len(run.updates),
                        before=None if run.verdict.before is None else run.verdict.before.value,
                        final=run.verdict.after.value,
                        best=peak.value,
                        best_update=peak.number,
                    )
                )
        final, best = _as_column([seed.final for seed in seeds]), _as_column([seed.best for seed in seeds])
        if seeds:
            estimates = estimate_interquartile_mean(final), estimate_interquartile_mean(best)
            results.append(VariantResult(name=variant.name, seeds=tuple(seeds), final=estimates[0], best=estimates[1]))
    pairs = combinations(results, 2) if len(results) <= MAX_COMPARED else ()
    return Results(
        name=verdict.name,
        split=verdict.split,
        task_set=verdict.after.task_set,
        tasks=verdict.after.tasks,
        measure=verdict.measure,
        variants=tuple(results),
        improvements=tuple(_compare(variant, over) for variant, over in pairs),
        missing=tuple(
            f"{variant.name} seed {run.seed}" for variant in variants for run in variant.runs if run.verdict is None
        ),
    )


def check_one_task_set(evaluated: Sequence[tuple[RunRecord, RunVerdict]]) -> None:
    (first, known), *others = evaluated
    for run, verdict in others:
        if verdict.after.task_set != known.after.task_set:
            raise ConfigError(
                f"{first.path} and {run.path} were evaluated on different tasks ({_name_task_set(known)} and "
                f"{_name_task_set(verdict)}), so they cannot be compared; report them one by one, or evaluate both on "
                "the same tasks"
            )
        if verdict.measure != known.measure:
            raise ConfigError(
                f"{first.path} has {known.measure} and {run.path} has {verdict.measure}, which cannot be compared; "
                "report them one by one"
            )
    for run, verdict in evaluated:
        if len({score.task_set for score in verdict.scores}) > 1:
            raise ConfigError(
                f"{run.path}: its task set changed during the run, so it cannot be compared; report it alone"
            )


def _name_task_set(verdict: RunVerdict) -> str:
    return f"{describe_task_set(verdict.name, verdict.split)}, hash {shorten_hash(verdict.after.task_set)}"


def _compare(variant: VariantResult, over: VariantResult) -> Improvement:
    """Compare two variants, the better one first; of equal ones the first."""
    scores = [_as_column([seed.final for seed in result.seeds]) for result in (variant, over)]
    probability = estimate_improvement(*scores)
    if probability.value < EVEN:
        return _compare(over, variant)
    has_interval = variant.has_interval and over.has_interval
    return Improvement(variant=variant.name, over=over.name, probability=probability, has_interval=has_interval)


def _as_column(values: Sequence[float]) -> FloatArray:
    return np.array(values, dtype=np.float64)[:, None]


# Curves of variants: the mean over seeds with its interval, at updates that all seeds have.
#
# A point is an update. On the other axes, its place is the mean of the runs' environment steps, sampled tokens or
# seconds of training so far.

UPDATES, STEPS, TOKENS, TIME = "updates", "steps", "tokens", "time"
SUMMED = {STEPS: "rollout/total_steps", TOKENS: "rollout/total_tokens"}
"""Metrics that are summed to an axis."""
MAX_POINTS = 60
"""Points of a curve."""
RESAMPLES = 2000
"""Bootstrap samples for the interval of a point."""


@dataclass(frozen=True, kw_only=True)
class CurvePoint:
    """The runs of a variant after an update."""

    number: int
    places: Mapping[str, float]
    mean: Estimate


@dataclass(frozen=True, kw_only=True)
class VariantCurve:
    """A number of a variant over updates."""

    variant: int
    """The index of the variant, which sets its colour."""
    name: str
    num_runs: int
    window: int
    """Updates of the running mean of each run; 0 = none."""
    points: tuple[CurvePoint, ...]
    """In the order of updates."""


def find_axes(variants: Sequence[VariantRuns]) -> list[str]:
    """The axes that are known for every run; updates are always one."""
    runs = [run for variant in variants for run in variant.runs if run.updates]
    known = [axis for axis in (STEPS, TOKENS, TIME) if all(_sum_costs(run, axis) is not None for run in runs)]
    return [UPDATES, *known] if runs else [UPDATES]


def make_metric_curves(variants: Sequence[VariantRuns], name: str, axes: Sequence[str]) -> list[VariantCurve]:
    curves = []
    for place, variant in enumerate(variants):
        runs = [(run, run.metrics[name]) for run in variant.runs if run.metrics.get(name)]
        curves += _make_curve(place, variant, runs, axes, is_noisy=True)
    return curves


def make_score_curves(variants: Sequence[VariantRuns], axes: Sequence[str]) -> list[VariantCurve]:
    curves = []
    for place, variant in enumerate(variants):
        runs = [
            (run, {score.number: score.value for score in run.verdict.scores})
            for run in variant.runs
            if run.verdict is not None
        ]
        curves += _make_curve(place, variant, runs, axes, is_noisy=False)
    return curves


def _make_curve(
    place: int,
    variant: VariantRuns,
    runs: Sequence[tuple[RunRecord, Mapping[int, float]]],
    axes: Sequence[str],
    *,
    is_noisy: bool,
) -> list[VariantCurve]:
    """The curve of a variant over the updates that all its runs have; empty if there are none."""
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
    return [VariantCurve(variant=place, name=variant.name, num_runs=len(runs), window=window, points=tuple(points))]


def _sum_costs(run: RunRecord, axis: str) -> dict[int, float] | None:
    """The cost of a run up to each update; None if it is not known for all updates."""
    if axis == UPDATES:
        return {number: float(number) for number in run.updates}
    stages = [curve for name, curve in run.metrics.items() if name.startswith(STAGES)]
    curves = stages if axis == TIME else [run.metrics.get(SUMMED[axis], {})]
    if not all(any(number in curve for curve in curves) for number in run.updates):
        return None
    costs = [sum(curve.get(number, 0.0) for curve in curves) for number in run.updates]
    return dict(zip(run.updates, accumulate(costs), strict=True))


def read_variants(folders: Sequence[Path]) -> list[VariantRuns]:
    """The variants in several folders: sweeps by their plans, other runs by their common settings."""
    seen = [folder.resolve() for folder in folders]
    for folder in folders:
        if seen.count(folder.resolve()) > 1:
            raise ConfigError(f"{folder} is given twice; give each run once")
    sweeps = [folder for folder in folders if (folder / SWEEP_PLAN).is_file()]
    variants = [variant for folder in sweeps for variant in _read_sweep(folder, is_alone=len(sweeps) == 1)]
    variants += group_runs([read_run(folder) for folder in folders if folder not in sweeps])
    names = [variant.name for variant in variants]
    for variant in variants:
        if names.count(variant.name) > 1:
            raise ConfigError(f"two variants have the name {variant.name!r}; report them one by one")
    return variants


def _read_sweep(folder: Path, *, is_alone: bool) -> list[VariantRuns]:
    """The variants of a sweep that have runs. With several sweeps, the sweep's name is a prefix."""
    plan = read_plan(folder)
    assert plan is not None, "a folder with a plan has a plan"
    variants = []
    for variant in plan.variants:
        begun = [
            run.folder
            for run in plan.list_runs(folder)
            if run.variant == variant.name and RunPaths(run.folder).journal.is_file()
        ]
        name = variant.name if is_alone else f"{folder.resolve().name}: {variant.name}"
        variants += [make_variant(name, [read_run(path) for path in begun])] if begun else []
    if not variants:
        raise FileError(f"{folder}: no run of the sweep has begun; start them with `groupwise sweep`")
    return variants
