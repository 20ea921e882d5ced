"""Attempts that were played ahead before a run stopped: read again, and refused where the settings would drop them."""

from __future__ import annotations

from math import inf

from groupwise.core.errors import TrainingError
from groupwise.core.journal.file import report_damage
from groupwise.groups.filters import Staleness
from groupwise.training.attempts.collect import UpdateAttempts
from groupwise.training.attempts.pending import read_pending
from groupwise.training.lag_corrections import lacks_correction
from groupwise.training.metrics.rollout import compute_age_metrics
from groupwise.training.run import Run
from groupwise.training.run_config import RunConfig


def read_ready(run: Run, done: int) -> dict[int, UpdateAttempts]:
    """The attempts that were played ahead when update `done` was written, by the update that they are for."""
    with report_damage(run.paths.journal):
        return {number: read_pending(pending) for number, pending in run.journal.read_pending(done).items()}


def check_ready(run: Run, done: int) -> None:
    """Stop a run that goes on with another lag where that would drop what is ready, or train it uncorrected."""
    rollout, updates = run.config.rollout, run.config.training.updates
    ages = {
        number: compute_age_metrics(attempts.chosen, number - 1).get("rollout/max_age", 0.0)
        for number, attempts in read_ready(run, done).items()
        if number <= updates
    }
    oldest, max_age = max(ages.values(), default=0.0), _find_max_age(run.config)
    if oldest <= max_age:
        return
    advice = f"rollout.max_age = {oldest:g}, also in a filter on staleness that the run file has,"
    if not rollout.lag:  # what is the last update plays nothing ahead
        advice = f"rollout.lag = 1, rollout.max_age = {oldest:g} and training.updates = {max(ages)}"
    raise TrainingError(
        f"{run.folder}: attempts that are ready for the next updates were sampled by weights up to {oldest:g} versions "
        f"back, and with rollout.lag = {rollout.lag} and rollout.max_age = {rollout.max_age} none is trained that is "
        f"more than {max_age:g} back; resume with {advice} until there is a checkpoint of update {max(ages)}, "
        "then with these settings"
    )


def _find_max_age(config: RunConfig) -> float:
    """How old attempts may be that the settings train, with a correction where one is due."""
    bounds: list[float] = [part.max_age for part in config.algorithm.filters if isinstance(part, Staleness)]
    if config.rollout.lag:
        bounds.append(config.rollout.max_age)
    elif config.rollout.corrects_lag and lacks_correction(config.algorithm):
        bounds.append(0)
    return min(bounds, default=inf)
