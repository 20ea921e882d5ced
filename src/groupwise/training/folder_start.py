"""The folder of a run before its first update: it must be unused, gets the run's settings, and its trackers start."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from groupwise.core.errors import TrainingError
from groupwise.core.text.secrets import check_no_secret
from groupwise.training.checkpoints.state_file import find_latest_checkpoint
from groupwise.training.run import Run
from groupwise.training.trackers import Trackers, check_trackers, track_run


def check_unused(run: Run) -> None:
    """Refuse a folder in which a run was begun."""
    if run.journal.last_number() >= 0 or find_latest_checkpoint(run.checkpoints):
        raise TrainingError(
            f"{run.folder} holds a run already; go on with resume=True (on the command line --resume), or choose "
            "another folder"
        )


@contextmanager
def prepare_folder(run: Run) -> Iterator[Trackers]:
    """Write the run's settings into its folder and start its trackers; they are finished when the context ends.

    Where that fails, the lock is given back, and a folder that was made for the run goes.
    """
    with ExitStack() as stack:
        with run.lock.release_on_failure():
            settings = run.config.config()
            check_no_secret(settings)
            check_trackers(run.config.trackers)
            run.paths.write_config(settings)
            trackers = stack.enter_context(track_run(run.config.trackers, settings, run.folder))
        yield trackers
