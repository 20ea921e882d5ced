"""What stateful parts remembered when an update began, as the journal keeps it beside the update's attempts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from groupwise.core.journal.blobs import pack_blob, unpack_blob
from groupwise.core.journal.file import JournalDatabase
from groupwise.core.remembered import Remembered


@dataclass(frozen=True, kw_only=True)
class StateBefore:
    """What a part remembered when an update began, as the journal keeps it.

    Worked example: path "algorithm.advantage.of", kind "above_prior", state {"tasks": {"t1": [0.25, 4.0]}}, columns
    {"prior": {"t1": 0.25, "t2": 0.5}}.
    """

    path: str
    """Where the part stands in the run's settings."""
    kind: str
    """What a run file calls it."""
    state: Mapping[str, Any]
    """What it remembered."""
    columns: Mapping[str, Mapping[str, Remembered]]
    """What it knew of the update's tasks by the column's name and the task's id: a number, or one for each index of a
    step."""


def has_states(database: JournalDatabase) -> bool:
    """Whether a journal that is only read was written when parts could have a state."""
    return bool(database.execute("SELECT 1 FROM sqlite_master WHERE name = 'part_states'").fetchone())


def write_states(database: JournalDatabase, number: int, states: Sequence[StateBefore]) -> None:
    """Write what parts remembered when an update began, within the update's transaction."""
    database.executemany(
        "INSERT INTO part_states VALUES (?, ?, ?, ?, ?)",
        [(number, state.path, state.kind, pack_blob(state.state), pack_blob(state.columns)) for state in states],
    )


def read_states(database: JournalDatabase, number: int) -> list[StateBefore]:
    """What parts remembered when an update began, by path; TypeError or ValueError where that is not what it says."""
    if not has_states(database):
        return []
    rows = database.execute(
        "SELECT path, kind, state, columns FROM part_states WHERE number = ? ORDER BY path", (number,)
    )
    return [
        StateBefore(path=_text(path), kind=_text(kind), state=_object(state), columns=_read_columns(columns))
        for path, kind, state, columns in rows
    ]


def _read_columns(blob: Any) -> dict[str, dict[str, Remembered]]:
    columns = _object(blob)
    for name, by_task in columns.items():
        if not isinstance(by_task, dict) or not all(_is_remembered(value) for value in by_task.values()):
            raise TypeError(f"the column {name!r} of a part's state holds something else than numbers")
    return columns


def _is_remembered(value: Any) -> bool:
    numbers = value if isinstance(value, list) and value else [value]
    return all(type(number) in (int, float) for number in numbers)


def _object(blob: Any) -> dict[str, Any]:
    value = unpack_blob(blob)
    if not isinstance(value, dict):
        raise TypeError(f"a part's state is a {type(value).__name__}")
    return value


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"a part's path is {value!r}")
    return value
