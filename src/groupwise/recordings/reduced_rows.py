"""What credit reads of a row, and nothing else: token lists become a count, texts that are only shown are dropped."""

from __future__ import annotations

import hashlib
from typing import Any, NamedTuple

from groupwise.core.errors import RecordError
from groupwise.core.step_fields.field import KEPT
from groupwise.core.step_fields.kinds import STATE
from groupwise.core.step_fields.table import FIRST_OBSERVATION, STEP_FIELDS
from groupwise.core.text.json_text import is_shallow, to_canonical_json
from groupwise.recordings.rollouts_chunk import RolloutsChunk
from groupwise.recordings.row import KEYS, Id, Row, describe_value_fault

_BULK = tuple(field.name for field in STEP_FIELDS if field.bulk)
_STATES = tuple(name for name, kind in KEYS.items() if kind is STATE)
_ABSENT: dict[str, Any] = {
    field.name: field.absent
    for field in STEP_FIELDS
    if field.in_rows and not field.bulk and field.absent is not None and field.absent is not KEPT
}
"""What an absent key means, where it does not mean 'unknown'."""

TOKEN_KEYS = ("response_ids", "logp_behaviour", "entropy", "forced", "segment")
"""What a token table reads of a row."""


class ReducedRow(NamedTuple):
    """One row without its bulk."""

    number: int
    """Line (or row) of the file."""
    task: Id
    """Id of the task, where a group took its place as the scope."""
    columns: dict[str, Any]
    """Its entries in the columns of a step table; `task` holds the scope."""
    tokens: dict[str, Any] | None = None
    """What was recorded of its tokens, as a token table takes it; None where nobody asked for that."""


def reduce_row(number: int, row: Row, *, keeps_tokens: bool = False) -> ReducedRow:
    """Strip a row, checked but for what its states hold, down to what credit reads; the row itself is used up."""
    columns: dict[str, Any] = row  # type: ignore[assignment]  # a TypedDict cannot be emptied key by key
    task = columns["task"]
    tokens = {name: columns[name] for name in TOKEN_KEYS if name in columns} if keeps_tokens else None
    if "group" in columns:
        columns["task"] = columns.pop("group")
    if "response_ids" in columns:
        columns["tokens"] = len(columns.pop("response_ids")) - columns.pop("forced", 0)
    for name in _BULK:
        columns.pop(name, None)
    if "observation" in columns:
        text = columns.pop("observation")
        if columns["index"] == 0:
            columns[FIRST_OBSERVATION] = _digest(text)
    for name in _STATES:
        if type(columns.get(name)) in (list, dict):
            columns[name] = _write_state(name, columns[name])
    if "extra" in columns:
        columns |= columns.pop("extra")
    return ReducedRow(number, task, columns, tokens)


def _write_state(name: str, value: Any) -> str:
    """The canonical text of a state; NaN, infinities and nesting without end have none."""
    try:
        text = to_canonical_json(value, takes_nan=False)
        if is_shallow(text, value):
            return text
    except (TypeError, ValueError, RecursionError):
        pass
    raise RecordError(describe_value_fault(name, value))


def _digest(text: str) -> str:
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=12).hexdigest()


MAX_COLUMNS = 1000
"""Of a file: each costs an entry on every row, so names that are new on every row would grow with their square."""


class ColumnNames:
    """Every column that some row of the file has, and whether any row has a sampled token.

    All chunks of a file have the same columns, also a chunk none of whose rows has an entry.
    """

    def __init__(self) -> None:
        self.seen: dict[str, None] = {}
        self.has_tokens = False

    def add(self, columns: dict[str, Any]) -> None:
        """Note one row's columns; more than a file may have are an error."""
        if not columns.keys() <= self.seen.keys():
            self.seen |= dict.fromkeys(columns)
            if len(self.seen) > MAX_COLUMNS:
                raise RecordError(
                    f"with this row the file has more than {MAX_COLUMNS} columns in 'extra'; keep the names few, and "
                    "put what differs from row to row into values"
                )
        if not self.has_tokens and columns.get("tokens"):
            self.has_tokens = True

    def columns(self) -> list[str]:
        """The columns of every chunk; lists of sampled tokens that are all empty were not recorded at all."""
        return [name for name in self.seen if name != "tokens" or self.has_tokens]


class RolloutsBuilder:
    """Rows, one after another, as columns."""

    def __init__(self) -> None:
        self._columns: dict[str, list[Any]] = {}
        self._tasks: list[Id] = []
        self._tokens: list[dict[str, Any]] = []
        self._numbers: list[int] = []
        self._known: dict[Any, Any] = {}

    def add(self, row: ReducedRow) -> None:
        """Append one row."""
        columns, known = self._columns, self._known
        before = len(self._numbers)
        for name, value in row.columns.items():
            column = columns.get(name)
            if column is None:
                columns[name] = column = [None] * before
            # Ids, states and actions repeat: one object for all of them keeps a chunk small.
            column.append(known.setdefault(value, value) if type(value) is str else value)
        if len(row.columns) < len(columns):
            for column in columns.values():
                if len(column) == before:
                    column.append(None)
        self._tasks.append(known.setdefault(row.task, row.task) if type(row.task) is str else row.task)
        self._numbers.append(row.number)
        if row.tokens is not None:
            self._tokens.append(row.tokens)

    def build(self, path: str, unit: str, names: list[str]) -> RolloutsChunk:
        """The rows so far as one chunk with the given columns."""
        num_rows = len(self._numbers)
        columns = {name: self._columns.get(name) or [None] * num_rows for name in names}
        for name, meaning in _ABSENT.items():
            if name in columns:
                columns[name] = [meaning if value is None else value for value in columns[name]]
        return RolloutsChunk(
            path=path, unit=unit, columns=columns, tasks=self._tasks, lines=self._numbers, tokens=self._tokens
        )
