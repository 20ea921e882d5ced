"""A checkpoint's `state.json`, with the digests of its files; which checkpoint is the latest, and which is whole."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from groupwise.store.journal import Journal
from groupwise.store.journal_file import DigestChain
from groupwise.store.run_folder import JOURNAL, LATEST, STATE
from groupwise.system.errors import FileError, TrainingError
from groupwise.system.files import digest_files, find_change, flush_file, write_atomic
from groupwise.system.json_text import digest_value, to_json
from groupwise.system.text import quote_line

NEEDED = ("files", "update", "learner_steps")
"""What every state.json has; the loop adds its own."""
MAX_POINTER_BYTES = 64
NUMBER = re.compile(r"[0-9]{4,12}")


def write_state(folder: Path, content: Mapping[str, Any]) -> None:
    """Write state.json, with the digest of every other file and of itself; all of them are on the disk afterwards."""
    files = digest_files(folder, list_files(folder), flush=True)
    whole = {**content, "files": files}
    path = folder / STATE
    path.write_text(to_json({**whole, "digest": digest_value(whole)}), encoding="utf-8")
    flush_file(path)


def list_files(folder: Path) -> list[str]:
    """List the files in a folder, at any depth, by their place in it."""
    return [path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()]


def read_state(path: Path) -> dict[str, Any]:
    """Read the state of a checkpoint whose files are all as they were written; else an error that says what fits."""
    try:
        state = _read_state_file(path / STATE)
        change = find_change(path, state["files"])
    except (OSError, ValueError) as error:
        raise damage_error(path, str(error)) from None
    # Whoever reads the folder might take a file that was added for one of its own.
    unknown = next((name for name in sorted(list_files(path)) if name not in {STATE, *state["files"]}), None)
    if change or unknown:
        raise damage_error(path, change or f"{unknown} was not written with it")
    return state


def check_files(path: Path, names: list[str]) -> None:
    """Refuse files of a checkpoint that are not as they were written; the others need not be there."""
    try:
        files = _read_state_file(path / STATE)["files"]
        change = find_change(path, {name: files.get(name) for name in names})
    except (OSError, ValueError) as error:
        raise damage_error(path, str(error)) from None
    if change:
        raise damage_error(path, change)


def find_latest_checkpoint(folder: Path) -> Path | None:
    """Find the checkpoint that `latest` names; None where there is none yet."""
    pointer = folder / LATEST
    try:
        with pointer.open("rb") as file:
            name = file.read(MAX_POINTER_BYTES).decode("ascii").strip()
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "not the number of a checkpoint"
        raise TrainingError(f"{pointer} cannot be read ({reason}); {advise_resuming(folder)}") from None
    if not NUMBER.fullmatch(name):
        raise TrainingError(
            f"{pointer} holds {quote_line(name)!r}, which is not the number of a checkpoint; {advise_resuming(folder)}"
        )
    if not (folder / name).is_dir():
        raise TrainingError(f"{pointer} names {name}, which is not there; {advise_resuming(folder)}")
    return folder / name


def set_latest(folder: Path, name: str) -> None:
    """Make `latest` name a checkpoint."""
    with write_atomic(folder / LATEST, flush=True) as draft:
        draft.write_text(name + "\n", encoding="ascii")


def damage_error(path: Path, what: str) -> TrainingError:
    """Make the error for a checkpoint that is not as it was written."""
    return TrainingError(f"checkpoint {path} is damaged ({quote_line(what)}); {advise_resuming(path.parent)}")


def advise_resuming(folder: Path, chain: DigestChain | None = None, *, without: int | None = None) -> str:
    """Say how to go on: from the newest checkpoint that is whole and that the journal leads to.

    `without` is the number of one that is out of the question.
    """
    journal = folder.parent / JOURNAL
    try:
        if chain is None and journal.is_file():
            with Journal(journal, read_only=True) as opened:
                chain = opened.check_digest_chain()
    except FileError:
        return f"no checkpoint fits its journal, which cannot be read: move {JOURNAL} away and start the run again"
    candidates = [path for path in _list_newest_first(folder) if int(path.name) != without]
    fitting = (path for path in candidates if _is_whole_and_fits(path, chain))
    newest = next(fitting, None)
    if newest is None:
        return "no other checkpoint is whole and fits the journal: start the run again"
    return (
        f"the newest checkpoint that is whole and fits the journal is {newest.name}: write `{newest.name}` into "
        f"{folder / LATEST} and resume"
    )


def _list_newest_first(folder: Path) -> list[Path]:
    checkpoints = [path for path in folder.glob("[0-9]*") if NUMBER.fullmatch(path.name) and path.is_dir()]
    return sorted(checkpoints, key=lambda path: int(path.name), reverse=True)


def _is_whole_and_fits(path: Path, chain: DigestChain | None) -> bool:
    try:
        state = _read_state_file(path / STATE)
        return find_change(path, state["files"]) is None and (
            chain is None or chain.leads_to(int(path.name), state.get("journal"))
        )
    except (OSError, ValueError):
        return False


def _read_state_file(path: Path) -> dict[str, Any]:
    """Read state.json; ValueError where it cannot be what was written."""
    try:
        state = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ValueError(f"{STATE} is missing") from None
    except (ValueError, RecursionError):
        raise ValueError(f"{STATE} is not JSON") from None
    if not isinstance(state, dict) or not isinstance(state.get("files"), dict):
        raise ValueError(
            f"{STATE} has no digests of the files: it is of a version before they were written, or changed"
        )
    digest = state.pop("digest", None)
    if digest != digest_value(state):
        raise ValueError(f"{STATE} is not as it was written")
    missing = [name for name in NEEDED if name not in state]
    if missing:
        raise ValueError(f"{STATE} has no {missing[0]!r}")
    return state
