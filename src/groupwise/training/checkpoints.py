"""The checkpoints of a run: save one, resume from the last, open a run at any."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from transformers import PreTrainedTokenizerBase

from groupwise.learner.protocol import Learner
from groupwise.store.checkpoint_files import (
    advise_resuming,
    damage_error,
    find_latest_checkpoint,
    read_state,
    set_latest,
    write_state,
)
from groupwise.store.run_folder import STATE, RunPaths, name_checkpoint
from groupwise.system.errors import ConfigError, FileError, TrainingError
from groupwise.system.text import quote_line
from groupwise.training.alarms import find_best_number
from groupwise.training.changed_settings import (
    check_changes,
    check_moved,
    compare_settings,
    flatten_config,
    read_recorded,
    undo_changes,
)
from groupwise.training.collect.ahead import check_ready
from groupwise.training.config.run_config import RunConfig
from groupwise.training.open_run import open_run
from groupwise.training.run import Run

_log = logging.getLogger(__name__)


def save_run(run: Run, number: int) -> Path:
    """Write the checkpoint of an update, from which `resume_run` continues as if the run had never stopped."""
    with run.state_lock:  # rollouts in other threads may draw tasks
        state = {"seed": run.config.seed, "curriculum": run.curriculum.state_dict(), "journal": run.journal.digest()}
        drawn = run.drawn_tasks.state_dict(without=run.journal.list_pending(number))
        parts = run.part_states.state_dict()
    pending = run.journal.digest_pending(number)
    state |= {name: value for name, value in {"parts": parts, "drawn": drawn, "pending": pending}.items() if value}
    run.lock.check()
    return save_checkpoint(run.checkpoints, number, run.learner, run.tokenizer, state)


def resume_run(run: Run) -> int | None:
    """Go back to the last checkpoint and drop the journal's later updates; None = there is no checkpoint.

    Allowed changes of settings are written into the journal. If the settings ask for fewer updates than the checkpoint
    has, nothing is written.
    """
    path = find_latest_checkpoint(run.checkpoints)
    if path is None:
        if run.journal.last_number() >= 0:
            raise TrainingError(
                f"{run.checkpoints} names no latest checkpoint, but the journal has updates; "
                f"{advise_resuming(run.checkpoints)}"
            )
        _log.warning("%s: there is nothing to resume yet, so the run begins", run.folder)
        return None
    recorded = read_recorded(run.folder)
    if recorded is not None:
        check_moved(check_changes(recorded, run.config, run.folder), run.journal.task_sets(), run.task_sets)
    state = load_checkpoint(path, run.learner)
    for name in ("curriculum", "journal"):
        if name not in state:
            raise damage_error(path, f"{STATE} has no {name!r}")
    number = int(state["update"])
    run.curriculum.load_state_dict(state["curriculum"])
    run.drawn_tasks.load_state_dict(state.get("drawn", {}))
    run.part_states.load_state_dict(state.get("parts", {}), checkpoint=path)
    if run.config.needs_reference:
        _hold_reference(run)
    asked = run.config.training.updates
    if number > asked:
        _log.warning(
            "%s has made %d updates already, more than %d; nothing was changed. To continue, raise training.updates",
            run.folder,
            number,
            asked,
        )
    else:  # last: if anything above fails, the journal still has the updates after the checkpoint
        _rewind_journal(run, number, str(state["journal"]), pending=state.get("pending"), recorded=recorded)
    run.sync(number)
    return number


def _hold_reference(run: Run) -> None:
    """Load the reference policy into the learner: the run's first, unless a part chose another."""
    number = run.reference or 0
    try:
        run.learner.hold_reference(run.paths.checkpoint(number))
    except TrainingError as error:
        what = str(error).partition("; ")[0]
        origin = f"the policy of update {number}" if number else "the policy that the run started from"
        raise TrainingError(
            f"{what}. It holds the reference of the loss, {origin}; put it back from a copy, or start the run again"
        ) from None


def _rewind_journal(run: Run, number: int, digest: str, *, pending: object, recorded: RunConfig | None) -> None:
    """Take the journal back to a checkpoint's update; an error if the journal does not lead there.

    `digest` is that of the journal's chain, `pending` that of the rollouts that were sampled ahead.
    """
    journal = run.journal
    chain = journal.check_digest_chain(number)
    if not chain.leads_to(number, digest):
        what = chain.fault or f"its update {number} is of another run"
        raise TrainingError(
            f"{run.folder}: the journal does not lead to checkpoint {number:04d} ({what}); "
            f"{advise_resuming(run.checkpoints, chain)}"
        )
    try:
        pending_now = journal.digest_pending(number)
    except FileError:
        pending_now = "unreadable"
    if pending_now != pending:
        what = "are missing" if pending_now is None else "are not as they were written"
        raise TrainingError(
            f"{run.folder}: the rollouts that were sampled ahead for update {number + 1} {what}, and the weights that "
            f"sampled them are gone; {advise_resuming(run.checkpoints, without=number)}"
        )
    check_ready(run, number)
    damage = journal.find_damage()
    if damage:
        journal.rewrite_up_to(number)
        _log.warning(
            "%s: the journal was damaged after the checkpoint (%s); its updates up to %d were written again, and the "
            "damaged file is kept beside it",
            run.folder,
            quote_line(damage, limit=200),
            number,
        )
    if run.config.reads_past_rollouts:
        journal.past_rollouts.check({task.id for task in run.tasks}, last=number)
    if recorded is not None:  # before later updates are dropped
        then = undo_changes(flatten_config(recorded), journal.changes(), number)
        journal.write_changes(number, compare_settings(then, flatten_config(run.config), number))
    journal.forget_after(number)


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
        run.sync(int(load_checkpoint(path, run.learner)["update"]))
    except BaseException:
        run.close()
        raise
    return run


def save_checkpoint(
    folder: Path, number: int, learner: Learner, tokenizer: PreTrainedTokenizerBase, state: Mapping[str, Any]
) -> Path:
    """Write checkpoint `number`: the learner's weights and optimizer state, the tokenizer, and the run's own state.

    It is moved to its place when it is complete. If a write fails (a full disk), earlier checkpoints stay as they are.
    """
    target = folder / name_checkpoint(number)
    draft = folder / f".{target.name}.tmp"
    shutil.rmtree(draft, ignore_errors=True)
    try:
        draft.mkdir(parents=True)
        learner.save(draft)
        save_tokenizer(tokenizer, draft)
        write_state(draft, {**state, "update": number, "learner_steps": learner.steps})
        shutil.rmtree(target, ignore_errors=True)
        draft.rename(target)
        set_latest(folder, target.name)
    except (OSError, SafetensorError) as error:  # safetensors' error for a full disk
        shutil.rmtree(draft, ignore_errors=True)
        reason = getattr(error, "strerror", None) or error
        raise TrainingError(
            f"checkpoint {target} could not be written ({reason}); the earlier ones are untouched. "
            "Free some space, then continue with --resume"
        ) from error
    return target


def save_tokenizer(tokenizer: PreTrainedTokenizerBase, folder: Path) -> None:
    """Write a tokenizer; any failure is an OSError."""
    try:
        tokenizer.save_pretrained(folder)
    except OSError:
        raise
    except Exception as error:  # the library's error for a full disk has no class of its own
        raise OSError(str(error)) from error


def load_checkpoint(path: Path, learner: Learner) -> dict[str, Any]:
    """Check all files against their digests, load the learner, and return the run's own state."""
    state = read_state(path)
    learner.load(path, steps=int(state["learner_steps"]))
    return state


def keep_evaluated(run: Run, number: int, *, is_last: bool) -> None:
    """After an evaluation: save the policy if it is the best so far or the last, then remove other checkpoints."""
    settings, rows = run.config.evaluation, run.journal.evaluations()
    numbers = _list_reached(run)
    is_best = run.config.checkpoints.keep != "all" and find_best_number(rows, settings, {*numbers, number}) == number
    if number not in numbers and (is_best or is_last):
        save_run(run, number)
    remove_others(run)


def remove_others(run: Run) -> None:
    """Remove checkpoints by the setting `checkpoints.keep`; the latest, the best and the reference always stay."""
    keep = run.config.checkpoints.keep
    if keep == "all":
        return
    run.lock.check()
    numbers = _list_reached(run)
    kept = {*numbers[-1:], find_best_number(run.journal.evaluations(), run.config.evaluation, numbers)}
    kept |= set(numbers[-keep:]) if isinstance(keep, int) else set()
    kept |= {run.reference or 0} if run.config.needs_reference else set()
    for number in set(numbers) - kept:
        checkpoint = run.paths.checkpoint(number)
        discarded = checkpoint.with_name(f".{checkpoint.name}.old")  # renamed first, so no half of it is found
        with suppress(OSError):  # if it cannot be removed, it stays
            shutil.rmtree(discarded, ignore_errors=True)
            checkpoint.rename(discarded)
            shutil.rmtree(discarded, ignore_errors=True)


def _list_reached(run: Run) -> list[int]:
    """The updates with a checkpoint, up to `latest`: after a run went back to it, later ones may be damaged."""
    latest = find_latest_checkpoint(run.checkpoints)
    return [number for number in run.paths.checkpoint_numbers() if latest is not None and number <= int(latest.name)]
