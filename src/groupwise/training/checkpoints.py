"""The checkpoints of a run: saving one, resuming from the last where it fits the journal, opening a run at any."""

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
    try:
        pending_now = journal.digest_pending(number)
    except FileError:
        pending_now = "unreadable"
    if pending_now != pending:
        what = "are missing" if pending_now is None else "are not as they were written"
        raise TrainingError(
            f"{run.folder}: the attempts that were played ahead for update {number + 1} {what}, and nobody has the "
            f"weights any more that played them; {advise_resuming(run.checkpoints, without=number)}"
        )
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


# Saving and loading a checkpoint: a folder with everything a run needs to go on, written whole or not at all.
#
# No pickle anywhere.


def save_checkpoint(
    folder: Path, number: int, learner: Learner, tokenizer: PreTrainedTokenizerBase, state: Mapping[str, Any]
) -> Path:
    """Write checkpoint `number`: the learner's weights and optimiser, the tokenizer, and the run's own state.

    It is written beside its place, with the digest of every file, and moved there when complete; `latest` then names
    it. A write that fails (a full disk) leaves the earlier checkpoints untouched.
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
    except (OSError, SafetensorError) as error:  # the latter is what safetensors makes of a full disk
        shutil.rmtree(draft, ignore_errors=True)
        reason = getattr(error, "strerror", None) or error
        raise TrainingError(
            f"checkpoint {target} could not be written ({reason}); the earlier ones are untouched. "
            "Free some space, then go on with --resume"
        ) from error
    return target


def save_tokenizer(tokenizer: PreTrainedTokenizerBase, folder: Path) -> None:
    """Write a tokenizer; OSError where the disk does not take it."""
    try:
        tokenizer.save_pretrained(folder)
    except OSError:
        raise
    except Exception as error:  # what the tokenizers' own library makes of a full disk has no class of its own
        raise OSError(str(error)) from error


def load_checkpoint(path: Path, learner: Learner) -> dict[str, Any]:
    """Let a learner load what it saved; the run's own state is returned.

    Every file is compared with its digest, and a file that was not written with the others is refused, before anything
    is loaded.
    """
    state = read_state(path)
    learner.load(path, steps=int(state["learner_steps"]))
    return state


# Which checkpoints a run keeps.
#
# One that keeps only some always keeps the latest, from which it goes on, the best, and the policy that its loss
# compares with.


def keep_evaluated(run: Run, number: int, *, is_last: bool) -> None:
    """After an evaluation: save the policy where it is the best so far or the last, and remove what need not stay."""
    settings, rows = run.config.evaluation, run.journal.evaluations()
    numbers = _list_reached(run)
    is_best = run.config.checkpoints.keep != "all" and find_best_number(rows, settings, {*numbers, number}) == number
    if number not in numbers and (is_best or is_last):
        save_run(run, number)
    remove_others(run)


def remove_others(run: Run) -> None:
    keep = run.config.checkpoints.keep
    if keep == "all":
        return
    run.lock.check()
    numbers = _list_reached(run)
    kept = {*numbers[-1:], find_best_number(run.journal.evaluations(), run.config.evaluation, numbers)}
    kept |= set(numbers[-keep:]) if isinstance(keep, int) else set()
    kept |= {run.reference or 0} if run.needs_reference else set()
    for number in set(numbers) - kept:
        checkpoint = run.paths.checkpoint(number)
        discarded = checkpoint.with_name(f".{checkpoint.name}.old")  # first its name: nobody finds half of it
        with suppress(OSError):  # what cannot be removed stays, and harms nobody
            shutil.rmtree(discarded, ignore_errors=True)
            checkpoint.rename(discarded)
            shutil.rmtree(discarded, ignore_errors=True)


def _list_reached(run: Run) -> list[int]:
    """The updates with a checkpoint up to the one that `latest` names.

    A run that went back to an earlier checkpoint has not come again to those after it, which may be damaged.
    """
    latest = find_latest_checkpoint(run.checkpoints)
    return [number for number in run.paths.checkpoint_numbers() if latest is not None and number <= int(latest.name)]
