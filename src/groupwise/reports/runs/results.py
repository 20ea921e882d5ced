"""What arms achieved on a panel: interquartile means over seeds with intervals, and which arm does better."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from groupwise.core.errors import ConfigError
from groupwise.core.segments import FloatArray
from groupwise.evaluation.over_seeds import Estimate, estimate_improvement, estimate_interquartile_mean
from groupwise.evaluation.verdict import PanelScore, RunVerdict, ScoreKind
from groupwise.reports.run.number_format import shorten_hash
from groupwise.reports.runs.read_runs import ArmRuns, RunRecord

EVEN = 0.5
"""Probability of improvement at which neither arm is better."""
MAX_COMPARED = 12
"""With more arms than this their pairs are not compared: nobody reads hundreds of probabilities."""


@dataclass(frozen=True, kw_only=True)
class SeedResult:
    """What one run achieved."""

    seed: int | None
    """Its seed."""
    folder: str
    """What its folder is called."""
    updates: int
    """How many updates it has made."""
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
    """The arm."""
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
    """The one."""
    over: str
    """The other."""
    probability: Estimate
    """That a run of the one does better than a run of the other, at least 0.5, which says that neither is better."""
    has_interval: bool
    """Whether its interval says anything: both arms have several runs."""


@dataclass(frozen=True, kw_only=True)
class Results:
    """What arms achieved on one panel."""

    split: str
    """The panel's name."""
    panel: str
    """Its hash."""
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
    results = [_sum_up_arm(arm) for arm in arms if any(run.verdict for run in arm.runs)]
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


def _sum_up_arm(arm: ArmRuns) -> ArmResult:
    seeds = [_sum_up_run(run, run.verdict) for run in arm.runs if run.verdict is not None]
    return ArmResult(
        name=arm.name,
        seeds=tuple(seeds),
        final=estimate_interquartile_mean(_as_column([seed.final for seed in seeds])),
        best=estimate_interquartile_mean(_as_column([seed.best for seed in seeds])),
    )


def _sum_up_run(run: RunRecord, verdict: RunVerdict) -> SeedResult:
    best = max(verdict.scores, key=lambda score: score.value)
    return SeedResult(
        seed=run.seed,
        folder=run.path.name,
        updates=len(run.updates),
        before=_read_value(verdict.before),
        final=verdict.after.value,
        best=best.value,
        best_update=best.number,
    )


def _read_value(score: PanelScore | None) -> float | None:
    return None if score is None else score.value


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
