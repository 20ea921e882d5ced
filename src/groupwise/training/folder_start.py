"""A run before its first update: its folder must be unused, gets the settings, trackers start; then a warm start."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from groupwise.core.errors import TrainingError
from groupwise.core.text.secrets import check_no_secret
from groupwise.training.checkpoints.run_checkpoints import save_run
from groupwise.training.checkpoints.state_file import find_latest_checkpoint
from groupwise.training.imitation.warm_start import warm_start
from groupwise.training.observer import RunObserver
from groupwise.training.run import Run
from groupwise.training.trackers import Trackers, check_trackers, track_run


def check_unused(run: Run) -> None:
    """Refuse a folder in which a run was begun."""
    if run.journal.last_number() >= 0 or find_latest_checkpoint(run.checkpoints):
        raise TrainingError(
            f"{run.folder} holds a run already; go on with resume=True (on the command line --resume), or choose "
            "another folder"
        )


def check_settings(run: Run) -> None:
    """Refuse settings that hold a secret, and trackers that cannot work, before anything of them is written.

    Where that fails, the lock is given back, and a folder that was made for the run goes.
    """
    with run.lock.release_on_failure():
        check_no_secret(run.config.config())
        check_trackers(run.config.trackers)


@contextmanager
def prepare_folder(run: Run) -> Iterator[Trackers]:
    """Write the run's settings into its folder and start its trackers; they are finished when the context ends.

    Where that fails, the lock is given back, and a folder that was made for the run goes.
    """
    with ExitStack() as stack:
        with run.lock.release_on_failure():
            settings = run.config.config()
            run.paths.write_config(settings)
            trackers = stack.enter_context(track_run(run.config.trackers, settings, run.folder))
        yield trackers


def start_run(run: Run, observer: RunObserver) -> int:
    """Begin a run: its warm start, if it has one, and the checkpoint of update 0."""
    if run.config.warm_start is None:
        run.start_engine()
    else:
        observer.on_stage("warm start", 0)
        report_epoch, report_faults = observer.on_warm_start_epoch, observer.on_expert_faults
        losses = warm_start(run, run.config.warm_start, report_epoch=report_epoch, report_faults=report_faults)
        observer.on_warm_start(losses)
    observer.on_stage("checkpoint", 0)
    save_run(run, 0)
    if run.needs_reference:
        run.learner.hold_reference()
    return 0
