"""A checkpoint's `state.json` with the digests of its files, and the choice of the checkpoint to resume from."""

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
"""What every state.json has; the loop adds more."""
NUMBER = re.compile(r"[0-9]{4,12}")


def write_state(folder: Path, content: Mapping[str, Any]) -> None:
    """Write state.json with the digest of every other file and its own, and flush all files to the disk."""
    files = digest_files(folder, list_files(folder), flush=True)
    whole = {**content, "files": files}
    path = folder / STATE
    path.write_text(to_json({**whole, "digest": digest_value(whole)}), encoding="utf-8")
    flush_file(path)


def list_files(folder: Path) -> list[str]:
    """The files in a folder, at any depth, by their relative paths."""
    return [path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()]


def read_state(path: Path) -> dict[str, Any]:
    """Read the state of an unchanged checkpoint; else an error that names the checkpoint to use instead."""
    try:
        state = _read_state_file(path / STATE)
        change = find_change(path, state["files"])
    except (OSError, ValueError) as error:
        raise damage_error(path, str(error)) from None
    # A reader of the folder could mistake an added file for its own.
    unknown = next((name for name in sorted(list_files(path)) if name not in {STATE, *state["files"]}), None)
    if change or unknown:
        raise damage_error(path, change or f"{unknown} was not written with it")
    return state


def check_files(path: Path, names: list[str]) -> None:
    """Raise an error if one of these files of a checkpoint changed; the other files may be missing."""
    try:
        files = _read_state_file(path / STATE)["files"]
        change = find_change(path, {name: files.get(name) for name in names})
    except (OSError, ValueError) as error:
        raise damage_error(path, str(error)) from None
    if change:
        raise damage_error(path, change)


def find_latest_checkpoint(folder: Path) -> Path | None:
    """The checkpoint that `latest` names; None = there is none yet."""
    pointer = folder / LATEST
    try:
        with pointer.open("rb") as file:
            name = file.read(64).decode("ascii").strip()
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
    with write_atomic(folder / LATEST, flush=True) as draft:
        draft.write_text(name + "\n", encoding="ascii")


def damage_error(path: Path, what: str) -> TrainingError:
    return TrainingError(f"checkpoint {path} is damaged ({quote_line(what)}); {advise_resuming(path.parent)}")


def advise_resuming(folder: Path, chain: DigestChain | None = None, *, without: int | None = None) -> str:
    """Say from which checkpoint to resume: the newest unchanged one that fits the journal, except number `without`."""
    journal = folder.parent / JOURNAL
    try:
        if chain is None and journal.is_file():
            with Journal(journal, read_only=True) as opened:
                chain = opened.check_digest_chain()
    except FileError:
        return f"no checkpoint fits its journal, which cannot be read: move {JOURNAL} away and start the run again"
    checkpoints = [path for path in folder.glob("[0-9]*") if NUMBER.fullmatch(path.name) and path.is_dir()]
    for path in sorted(checkpoints, key=lambda path: int(path.name), reverse=True):
        number = int(path.name)
        try:
            state = _read_state_file(path / STATE)
            is_whole = number != without and find_change(path, state["files"]) is None
        except (OSError, ValueError):
            continue
        if is_whole and (chain is None or chain.leads_to(number, state.get("journal"))):
            return (
                f"the newest checkpoint that is whole and fits the journal is {path.name}: write `{path.name}` into "
                f"{folder / LATEST} and resume"
            )
    return "no other checkpoint is whole and fits the journal: start the run again"


def _read_state_file(path: Path) -> dict[str, Any]:
    """Read state.json; a ValueError if it changed since it was written."""
    try:
        state = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ValueError(f"{STATE} is missing") from None
    except (ValueError, RecursionError):
        raise ValueError(f"{STATE} is not JSON") from None
    if not isinstance(state, dict) or not isinstance(state.get("files"), dict):
        raise ValueError(f"{STATE} has no digests of the files: an older version wrote it, or it was changed")
    digest = state.pop("digest", None)
    if digest != digest_value(state):
        raise ValueError(f"{STATE} is not as it was written")
    missing = [name for name in NEEDED if name not in state]
    if missing:
        raise ValueError(f"{STATE} has no {missing[0]!r}")
    return state
