"""How far a run's folder has come, without opening the run."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from groupwise.core.errors import FileError
from groupwise.core.journal.evaluations import EvaluatedAttempt
from groupwise.core.journal.journal import Journal
from groupwise.core.run_paths import RunPaths
from groupwise.training.alarms.watch import find_stop
from groupwise.training.checkpoints.best_update import is_out_of_patience
from groupwise.training.checkpoints.state_file import find_latest_checkpoint
from groupwise.training.run_config import RunConfig


def is_finished(folder: Path, config: RunConfig) -> bool:
    """Whether nothing is left to do: the last update has its checkpoint, and its evaluation where one was asked for.

    The last update is the one that the settings name, or one at which the run's patience was at its end, or at which an
    alarm stops the run.
    """
    paths, updates, wanted = RunPaths(folder), config.training.updates, config.evaluation
    latest = find_latest_checkpoint(paths.checkpoints)
    if latest is None:
        return False
    last = int(latest.name)
    try:
        with Journal(paths.journal, read_only=True) as journal:
            rows = [row for row in journal.evaluations() if row.number <= last]
            is_stopped = last < updates and find_stop(journal, config, last) is not None
    except FileError:  # a damaged journal: going on says what can be done about it
        return False
    if last < updates and not is_stopped:
        return is_out_of_patience(rows, wanted)
    lacks_evaluation = wanted.tasks and last <= updates and (last, wanted.split) not in _list_played(rows)
    return not lacks_evaluation


def _list_played(rows: Sequence[EvaluatedAttempt]) -> set[tuple[int, str]]:
    return {(row.number, row.split) for row in rows}
