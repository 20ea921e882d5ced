"""The checkpoints of a run: saving one, resuming from the last where it fits the journal, opening a run at any."""

from __future__ import annotations

import logging
from pathlib import Path

from groupwise.core.errors import ConfigError, FileError, TrainingError
from groupwise.core.run_paths import STATE, RunPaths
from groupwise.core.text.safe_text import quote_line
from groupwise.training.attempts.ready import check_ready
from groupwise.training.checkpoints.changed_settings import (
    check_changes,
    check_moved,
    compare_settings,
    flatten_config,
    read_recorded,
    undo_changes,
)
from groupwise.training.checkpoints.checkpoint import load_checkpoint, save_checkpoint
from groupwise.training.checkpoints.state_file import advise_resuming, damage_error, find_latest_checkpoint
from groupwise.training.open_run import open_run
from groupwise.training.run import Run
from groupwise.training.run_config import RunConfig

_log = logging.getLogger(__name__)


def save_run(run: Run, number: int) -> Path:
    """Write the checkpoint of an update: what `resume_run` needs to go on as if the run had never stopped."""
    with run.state_lock:  # attempts that play may draw tasks
        state = {"seed": run.config.seed, "curriculum": run.curriculum.state_dict(), "journal": run.journal.digest()}
        drawn = run.drawn_tasks.state_dict(without=run.journal.list_pending(number))
        parts = run.part_states.state_dict()
    pending = run.journal.digest_pending(number)
    state |= {name: value for name, value in {"parts": parts, "drawn": drawn, "pending": pending}.items() if value}
    run.lock.check()
    return save_checkpoint(run.checkpoints, number, run.learner, run.tokenizer, state)


def resume_run(run: Run) -> int | None:
    """Go back to the last checkpoint and forget what came after: it will come again, the same. None = there is none.

    Settings may be others than the run's own where that does no harm, which is written down; others are refused. Where
    they ask for fewer updates than the checkpoint has, the run is as the checkpoint has it, and nothing is written.
    """
    path = find_latest_checkpoint(run.checkpoints)
    if path is None:
        if run.journal.last_number() >= 0:
            raise TrainingError(
                f"{run.checkpoints} names no latest checkpoint, but the journal has updates; "
                f"{advise_resuming(run.checkpoints)}"
            )
        _log.warning("%s: there is nothing to resume yet, so that the run begins", run.folder)
        return None
    recorded = read_recorded(run.folder)
    if recorded is not None:
        check_moved(check_changes(recorded, run.config, run.folder), run.journal.panels(), run.panels)
    state = load_checkpoint(path, run.learner)
    for name in ("curriculum", "journal"):
        if name not in state:
            raise damage_error(path, f"{STATE} has no {name!r}")
    number = int(state["update"])
    run.curriculum.load_state_dict(state["curriculum"])
    run.drawn_tasks.load_state_dict(state.get("drawn", {}))
    run.part_states.load_state_dict(state.get("parts", {}), checkpoint=path)
    if run.needs_reference:
        _hold_reference(run)
    asked = run.config.training.updates
    if number > asked:
        _log.warning(
            "%s has made %d updates already, more than %d, and nothing was changed; to go on, raise training.updates",
            run.folder,
            number,
            asked,
        )
    else:  # last: what stops the run above leaves the journal as it was, with the updates after the checkpoint
        _rewind_journal(run, number, str(state["journal"]), pending=state.get("pending"), recorded=recorded)
    run.hand_over(number)
    return number


def _hold_reference(run: Run) -> None:
    """Let the learner take up the policy that the loss compares with: the run's first, unless a part chose another."""
    number = run.reference or 0
    try:
        run.learner.hold_reference(run.paths.checkpoint(number))
    except TrainingError as error:
        what = str(error).partition("; ")[0]
        origin = f"that of update {number}" if number else "which the run started from"
        raise TrainingError(
            f"{what}, and the loss compares with the policy in it, {origin}; put it back from a copy, or start the run "
            "again"
        ) from None


def _rewind_journal(run: Run, number: int, digest: str, *, pending: object, recorded: RunConfig | None) -> None:
    """Take the journal back to a checkpoint's update, or stop where it does not lead there.

    `digest` is that of its chain, `pending` that of what was played ahead (None = nothing was), `recorded` are the
    settings in the folder.
    """
    journal = run.journal
    chain = journal.check_digest_chain(number)
    if not chain.leads_to(number, digest):
        what = chain.fault or f"its update {number} is of another run"
        raise TrainingError(
            f"{run.folder}: the journal does not lead to checkpoint {number:04d} ({what}); "
            f"{advise_resuming(run.checkpoints, chain)}"
        )
    _check_pending(run, number, pending)
    check_ready(run, number)
    damage = journal.find_damage()
    if damage:
        journal.rewrite_up_to(number)
        _log.warning(
            "%s: the journal was damaged after what the checkpoint needs (%s); its updates up to %d were written "
            "anew, and the damaged file is kept beside it",
            run.folder,
            quote_line(damage, limit=200),
            number,
        )
    if run.config.reads_past_attempts:
        journal.past_attempts.check({task.id for task in run.tasks}, last=number)
    if recorded is not None:  # before what came after goes: of that, the changes say what the settings were
        then = undo_changes(flatten_config(recorded), journal.changes(), number)
        journal.write_changes(number, compare_settings(then, flatten_config(run.config), number))
    journal.forget_after(number)


def _check_pending(run: Run, number: int, digest: object) -> None:
    """Stop where the attempts that were played ahead are not those that the checkpoint was written with."""
    try:
        digest_now = run.journal.digest_pending(number)
    except FileError:
        digest_now = "unreadable"
    if digest_now != digest:
        what = "are missing" if digest_now is None else "are not as they were written"
        raise TrainingError(
            f"{run.folder}: the attempts that were played ahead for update {number + 1} {what}, and nobody has the "
            f"weights any more that played them; {advise_resuming(run.checkpoints, without=number)}"
        )


def open_run_at(config: RunConfig, folder: Path, number: int | None = None, *, read_only: bool = False) -> Run:
    """Open a run with the weights of one of its checkpoints; None = the latest."""
    paths = RunPaths(folder)
    path = find_latest_checkpoint(paths.checkpoints) if number is None else paths.checkpoint(number)
    if path is None or not path.is_dir():
        known = ", ".join(str(int(checkpoint.name)) for checkpoint in sorted(paths.checkpoints.glob("[0-9]*")))
        wanted = "no checkpoint" if number is None else f"no checkpoint {number}"
        raise ConfigError(f"{folder}: there is {wanted}; there are: {known or 'none yet'}")
    run = open_run(config, folder, read_only=read_only, learns=False)
    try:
        run.hand_over(int(load_checkpoint(path, run.learner)["update"]))
    except BaseException:
        run.close()
        raise
    return run
