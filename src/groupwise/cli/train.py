"""`groupwise train`: train a run file, or resume a run."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from groupwise.cli.arguments import (
    Set,
    Unset,
    argument,
    flag,
    load_run_config,
    load_run_file,
    need_trainer,
    option,
    print_note,
)
from groupwise.cli.screen import errors, print_line
from groupwise.parts.outside import WITHOUT_TRUST, only_reading
from groupwise.store.checkpoint_files import find_latest_checkpoint
from groupwise.store.journal import Journal
from groupwise.store.run_folder import RunPaths
from groupwise.system.errors import ConfigError
from groupwise.system.processes import check_started_rank

if TYPE_CHECKING:
    from groupwise.store.journal import SettingChange
    from groupwise.training.config.run_config import RunConfig

STOPPED = 3
"""Exit status if an alarm stopped the run."""


def train(
    file: Annotated[Path, argument("RUN.toml", "Run file, or with --resume a run folder.")],
    out: Annotated[Path | None, option("FOLDER", "Run folder; default: runs/NAME.")] = None,
    set_: Set = None,
    unset: Unset = None,
    resume: Annotated[bool, flag("--resume", "Resume from the last checkpoint in the run folder.")] = False,
    plain: Annotated[bool, flag("--plain", "Print one line per update instead of the live display.")] = False,
    tracker: Annotated[list[str] | None, option("NAME", "Also log to this tracker, such as wandb. Repeatable.")] = None,
) -> None:
    """Train a model, and save everything in a run folder. The order is warm start, evaluation, updates, evaluation."""
    need_trainer()
    folder = out or (file if file.is_dir() else Path("runs") / file.stem)
    # Other ranks find what rank 0 has begun to write. If the file is missing, loading it gives the better error.
    if check_started_rank().rank == 0 and file.exists() and RunPaths(folder).holds_run() and not resume:
        raise ConfigError(f"{folder} already has a run; continue it with --resume, or choose another folder with --out")
    config = _settle_threads(_add_trackers(load_run_file(file, set_, unset), tracker or ()), folder)
    from groupwise.training.alarms import is_finished
    from groupwise.training.changed_settings import check_changes
    from groupwise.training.config.checks import list_notices
    from groupwise.training.open_run import follow_run, is_follower, open_run

    if is_follower(config):
        if not (resume and is_finished(folder, config)):
            follow_run(config)
        return
    from groupwise.cli.live import show_live
    from groupwise.training.loop import train as run_loop

    changes: Sequence[SettingChange] = ()
    if resume and RunPaths(folder).config.is_file():  # a forbidden change is an error before anything is opened
        changes = check_changes(load_run_config(folder), config, folder)
    if resume and is_finished(folder, config):
        return _print_finished(folder, config)
    for change in changes:
        _print_change(change.path, repr(change.before), repr(change.after))
    try:
        with ExitStack() as stack:
            screen = stack.enter_context(show_live(str(folder), config.training.updates, plain=plain))
            run = stack.enter_context(open_run(config, folder))
            for line in list_notices(config):  # not before the run is open: an error needs no notices
                print_note(line)
            named = run.journal.task_sets()
            for split, digest in run.task_sets.items():  # with a task-set file, other tasks are an error
                if named.get(split, digest) != digest:
                    _print_change(f"the {split} task set", named[split][:12], digest[:12])
            if resume and (last := find_latest_checkpoint(run.paths.checkpoints)) is not None:
                print_line(f"resumes after update {int(last.name)} of {config.training.updates}", to=errors())
            run_loop(run, resume=resume, observers=[screen])
    except KeyboardInterrupt:
        print_line(f"stopped; resume with: groupwise train --resume {_quote(folder)}", to=errors())
        raise typer.Exit(130) from None
    _print_next(folder, config)
    _exit_if_stopped(folder, config)


def _settle_threads(asked: RunConfig, folder: Path) -> RunConfig:
    """Choose the number of threads, and print a note if there are fewer than the run file asks for."""
    from groupwise.training.open_run import settle_threads

    config = settle_threads(asked, folder)
    if config.threads < asked.threads:
        print_note(
            f"{config.threads} of {asked.threads} threads: no more cores are free, or OMP_NUM_THREADS is lower. "
            "The last digits of the numbers depend on it."
        )
    return config


def _exit_if_stopped(folder: Path, config: RunConfig) -> None:
    """Exit with status 3 if an alarm stopped the run before its last update, and print how to resume."""
    from groupwise.training.alarms import describe_going_on, find_stop

    with Journal(RunPaths(folder).journal, read_only=True) as journal:
        last = max(journal.last_number(), 0)
        alarm = find_stop(journal, config, last) if last < config.training.updates else None
    if alarm is not None:
        print_line(f"{folder} was {alarm.line}; {describe_going_on(alarm)}", to=errors())
        raise typer.Exit(STOPPED)


def _print_finished(folder: Path, config: RunConfig) -> None:
    _exit_if_stopped(folder, config)
    last = find_latest_checkpoint(RunPaths(folder).checkpoints)
    assert last is not None, "a run without a checkpoint is not finished"
    made, asked = int(last.name), config.training.updates
    more = "training.updates" if made >= asked else "evaluation.patience"
    state = (
        f"already has {made} updates, more than {asked}; nothing was changed"
        if made > asked
        else f"is finished: {made} of {asked} updates"
    )
    print_line(f"{folder} {state}; to continue, raise the limit with --set {more}=N")


def _add_trackers(config: RunConfig, trackers: Sequence[str]) -> RunConfig:
    configured = config.config()["trackers"]
    new = [name for name in trackers if name not in {tracker["kind"] for tracker in configured}]
    extended = {**config.config(), "trackers": [*configured, *new]}
    return type(config)(**extended) if trackers else config


def _print_change(what: str, before: str, after: str) -> None:
    print_line(f"changed since the run began: {what} was {before}, is {after}", to=errors())


def _print_next(folder: Path, config: RunConfig) -> None:
    """Print why the run ended early, if it did, and the commands to inspect it."""
    from groupwise.training.alarms import find_best_number, is_out_of_patience

    with Journal(RunPaths(folder).journal, read_only=True) as journal:
        last, rows = journal.last_number(), journal.evaluations()
    if last < config.training.updates and is_out_of_patience(rows, config.evaluation):
        print_line(
            f"ended early, after update {last} of {config.training.updates}: no evaluation was better than that after "
            f"update {find_best_number(rows, config.evaluation)}; to continue, raise evaluation.patience"
        )
    print_line(f"\nThe run is in {folder}. Inspect it:")
    more = " --trust" if _needs_trust(folder) else ""
    for command in ("inspect", "report", "evaluate"):
        print_line(f"  groupwise {command} {_quote(folder)}{more}")


def _needs_trust(folder: Path) -> bool:
    try:
        with only_reading():
            load_run_config(folder)
    except ConfigError as error:
        return WITHOUT_TRUST in str(error)
    return False


def _quote(folder: Path) -> str:
    return shlex.quote(str(folder))
