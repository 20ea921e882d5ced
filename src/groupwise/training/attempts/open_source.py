"""Opening what a run's attempts come from, by its lag; what was played ahead before it stopped comes first."""

from __future__ import annotations

from groupwise.core.journal.file import report_damage
from groupwise.training.attempts.collect import UpdateAttempts
from groupwise.training.attempts.pending import read_pending
from groupwise.training.attempts.source import AttemptSource, PlayedNow
from groupwise.training.attempts.stepped import PlayedOneAhead
from groupwise.training.run import Run


def open_source(run: Run, done: int) -> AttemptSource:
    """Open the source of a run's attempts, for the updates after those that are done."""
    ready = read_ready(run, done)
    return PlayedOneAhead(run, ready) if run.config.rollout.lag == 1 else PlayedNow(run, ready)


def read_ready(run: Run, done: int) -> dict[int, UpdateAttempts]:
    """The attempts that were played ahead when update `done` was written, by the update that they are for."""
    with report_damage(run.paths.journal):
        return {number: read_pending(pending) for number, pending in run.journal.read_pending(done).items()}
