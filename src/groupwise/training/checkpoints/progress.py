"""How far a run's folder has come, without opening the run."""

from __future__ import annotations

from pathlib import Path

from groupwise.core.errors import FileError
from groupwise.core.journal.journal import Journal
from groupwise.core.run_paths import RunPaths
from groupwise.training.checkpoints.state_file import find_latest_checkpoint
from groupwise.training.run_config import RunConfig


def is_finished(folder: Path, config: RunConfig) -> bool:
    """Whether nothing is left to do: the last update has its checkpoint, and its evaluation where one was asked for."""
    paths, updates, wanted = RunPaths(folder), config.training.updates, config.evaluation
    last = find_latest_checkpoint(paths.checkpoints)
    if last is None or int(last.name) < updates:
        return False
    try:
        with Journal(paths.journal, read_only=True) as journal:
            played = {(row.number, row.split) for row in journal.evaluations()}
    except FileError:  # a damaged journal: going on says what can be done about it
        return False
    lacks_evaluation = wanted.tasks and (updates, wanted.split) not in played and int(last.name) == updates
    return not lacks_evaluation
