"""Which checkpoint of a run is exported: the latest, that of an update, or the one that did best on held-out tasks."""

from __future__ import annotations

from pathlib import Path

from groupwise.core.errors import ConfigError
from groupwise.core.run_paths import RunPaths
from groupwise.evaluation.settings import EvaluationConfig
from groupwise.evaluation.summary import Evaluation, group_rows
from groupwise.reports.run.run_folder import RunFolder
from groupwise.training.checkpoints.best_update import find_best_number
from groupwise.training.checkpoints.state_file import find_latest_checkpoint


def choose_checkpoint(run: RunFolder, *, update: int | None = None, best: bool = False) -> Path:
    """The folder of a checkpoint.

    Args:
        run: the run.
        update: after which update; None = the latest, or the best.
        best: whether to take the one with the highest held-out success.
    """
    if best and update is not None:
        raise ConfigError("an update and --best both say which checkpoint is meant; give one of them")
    paths = RunPaths(run.path)
    numbers = paths.checkpoint_numbers()
    if best:
        return paths.checkpoint(find_best_update(run))
    if update is None:
        latest = find_latest_checkpoint(paths.checkpoints)
        if latest is None:
            raise ConfigError(f"{run.path}: there is no checkpoint yet; let the run go on until it has written one")
        return latest
    if update not in numbers:
        known = ", ".join(map(str, sorted(numbers))) or "none yet"
        raise ConfigError(f"{run.path}: there is no checkpoint of update {update}; there are: {known}")
    return paths.checkpoint(update)


def find_best_update(run: RunFolder) -> int:
    """The update that did best on the run's panel, of those whose checkpoint is there; of equals, the earliest."""
    settings = EvaluationConfig(**(run.setting("evaluation") or {}))
    among = set(RunPaths(run.path).checkpoint_numbers())
    best = find_best_number(run.journal.evaluations(), settings, among)
    if best is None:
        raise ConfigError(
            f"{run.path}: no checkpoint was evaluated, so none is the best; play one with `groupwise evaluate`, set "
            "evaluation.every to a multiple of training.checkpoint_every, or name an update"
        )
    return best


def read_evaluations(run: RunFolder) -> list[Evaluation]:
    """The evaluations of the run's own panel, by update."""
    split = run.setting("evaluation.split")
    rows = [row for row in run.journal.evaluations() if split is None or row.split == split]
    return [Evaluation.from_rows(of_update) for _, of_update in group_rows(rows, lambda row: [row.number])]
