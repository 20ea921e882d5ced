"""Which checkpoints a run keeps.

One that keeps only some always keeps the latest, from which it goes on, the best, and the policy that its loss compares
with.
"""

from __future__ import annotations

import shutil
from contextlib import suppress
from pathlib import Path

from groupwise.training.checkpoints.best_update import find_best_number
from groupwise.training.checkpoints.run_checkpoints import save_run
from groupwise.training.checkpoints.state_file import find_latest_checkpoint
from groupwise.training.run import Run


def keep_evaluated(run: Run, number: int, *, is_last: bool) -> None:
    """After an evaluation: save the policy where it is the best so far or the last, and remove what need not stay."""
    settings, rows = run.config.evaluation, run.journal.evaluations()
    numbers = _list_reached(run)
    is_best = run.config.checkpoints.keep != "all" and find_best_number(rows, settings, {*numbers, number}) == number
    if number not in numbers and (is_best or is_last):
        save_run(run, number)
    remove_others(run)


def remove_others(run: Run) -> None:
    """Remove the checkpoints that the run's settings do not keep."""
    keep = run.config.checkpoints.keep
    if keep == "all":
        return
    run.lock.check()
    numbers = _list_reached(run)
    kept = {*numbers[-1:], find_best_number(run.journal.evaluations(), run.config.evaluation, numbers)}
    kept |= set(numbers[-keep:]) if isinstance(keep, int) else set()
    kept |= {run.reference or 0} if run.needs_reference else set()
    for number in set(numbers) - kept:
        _remove(run.paths.checkpoint(number))


def _list_reached(run: Run) -> list[int]:
    """The updates with a checkpoint up to the one that `latest` names.

    A run that went back to an earlier checkpoint has not come again to those after it, which may be damaged.
    """
    latest = find_latest_checkpoint(run.checkpoints)
    return [number for number in run.paths.checkpoint_numbers() if latest is not None and number <= int(latest.name)]


def _remove(checkpoint: Path) -> None:
    """Remove a checkpoint: first its name, so that nobody finds half of it."""
    discarded = checkpoint.with_name(f".{checkpoint.name}.old")
    with suppress(OSError):  # what cannot be removed stays, and harms nobody
        shutil.rmtree(discarded, ignore_errors=True)
        checkpoint.rename(discarded)
        shutil.rmtree(discarded, ignore_errors=True)
