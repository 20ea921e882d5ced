"""Rows of anybody's JSON Lines or Parquet, by a map from the keys of a row to that file's columns.

A row of the file is an attempt, or a step of one:

- without a column for `attempt`, every row is an attempt of its own, numbered within its task (or group);
- without one for `index`, the rows of an attempt are its steps in the order of the file;
- a column for `group` (the update, say) divides the attempts at each task: tasks that share its value stay apart.

Values are read for what they must mean: true and false as the rewards 1 and 0; lists and objects (a chat's messages) as
their canonical JSON text where text is wanted, and as its digest where an id is. Null and absent are the same; the
columns of ids and rewards must have a value in every row, every other column in some row.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, cast

from groupwise.core.errors import FileError, nearest
from groupwise.core.step_fields import kinds
from groupwise.core.step_fields.kinds import Kind
from groupwise.core.text.json_text import to_canonical_json
from groupwise.recordings.foreign.column_map import EXTRA, ColumnMap
from groupwise.recordings.foreign.column_paths import find_value, is_missing, point_to_nearest
from groupwise.recordings.foreign.record import Record, make_id
from groupwise.recordings.json_values import to_json_value
from groupwise.recordings.lines import Progress
from groupwise.recordings.parquet_file import ParquetFile
from groupwise.recordings.row import KEYS, Row, quote_json

_IN_EVERY_ROW = ("task", "group", "attempt", "index", "reward")


class RecordsFile(Protocol):
    """A file of objects, one a line or a row."""

    @property
    def path(self) -> Path:
        """The file."""

    @property
    def unit(self) -> str:
        """What its objects are numbered by: "line" or "row"."""

    @property
    def is_compressed(self) -> bool:
        """Whether the file is smaller than its content."""

    def values(self, progress: Progress | None = None) -> Iterator[tuple[int, Any]]:
        """Every object with its number."""


@dataclass(frozen=True)
class MappedSource:
    """The rows of anybody's file."""

    file: RecordsFile
    columns: Mapping[str, str]
    """Key of a row to column."""

    @classmethod
    def of(cls, file: RecordsFile, columns: ColumnMap) -> MappedSource:
        """A reader of a file; of a Parquet file only the mapped columns are read, and those must be there."""
        if isinstance(file, ParquetFile):
            file = ParquetFile(file.path, columns=_choose_columns(file, columns))
        return cls(file, columns.columns)

    @property
    def unit(self) -> str:
        """What rows are numbered by."""
        return self.file.unit

    @property
    def is_compressed(self) -> bool:
        """Whether the file is smaller than its content."""
        return self.file.is_compressed

    def meta(self) -> Mapping[str, Any]:
        """Where the rows come from."""
        return {"read_as": "mapped columns", "columns": dict(self.columns)}

    def read_rows(self, progress: Progress | None, left_out: Counter[str]) -> Iterator[tuple[int, Row]]:
        """Every row."""
        numbering = _Numbering(counts_steps="attempt" in self.columns)
        unseen = dict(self.columns)
        last: dict[str, Any] = {}
        for number, value in self.file.values(progress):
            if not isinstance(value, dict):
                raise self._make_error(number, f"found {quote_json(value)} instead of an object with columns")
            row = self._make_row(number, value, unseen)
            if "group" in row:
                row["group"] = _name_group(row["task"], row["group"])
            numbering.complete(row)
            last = value
            yield number, cast(Row, row)
        for key, column in unseen.items():
            if last:
                raise FileError(
                    f"{self.file.path}: no {self.unit} has a column {column!r}, which {key!r} is mapped to; "
                    f"{point_to_nearest(last, column)}"
                )

    def _make_row(self, number: int, fields: dict[str, Any], unseen: dict[str, str]) -> dict[str, Any]:
        row: dict[str, Any] = {}
        for key, column in self.columns.items():
            value = find_value(fields, column)
            if is_missing(value):
                if key in _IN_EVERY_ROW:
                    raise self._make_error(number, f"no column {column!r}; {point_to_nearest(fields, column)}")
                continue
            unseen.pop(key, None)
            if value is None and key in _IN_EVERY_ROW:
                raise self._make_error(number, f"column {column!r} is null; {_ask_for(key)}")
            if value is None and not _takes_null(key):
                continue
            record = Record(self.file.path, number, {column: value}, unit=self.unit)
            if key.startswith(EXTRA):
                row.setdefault("extra", {})[key.removeprefix(EXTRA)] = to_json_value(value)
            else:
                row[key] = _READERS.get(KEYS[key], _read_as_it_is)(record, column)
        return row

    def _make_error(self, number: int, fault: str) -> FileError:
        return FileError(f"{self.file.path}, {self.unit} {number}: {fault}", row=number)


class _Numbering:
    """Numbers attempts and steps for which a file has no column, in the order of its rows."""

    def __init__(self, *, counts_steps: bool) -> None:
        self._counts_steps = counts_steps
        self._seen: Counter[Any] = Counter()

    def complete(self, row: dict[str, Any]) -> None:
        """Give a row the attempt and the index that it lacks."""
        scope = row.get("group", row["task"])
        if not self._counts_steps:
            row["attempt"], row["index"] = self._count(scope), 0
        elif "index" not in row:
            row["index"] = self._count((scope, row["attempt"]))

    def _count(self, place: Any) -> int:
        self._seen[place] += 1
        return self._seen[place] - 1


def _name_group(task: str | int, group: str | int) -> str:
    """An id for the attempts at a task that are compared, `TASK@GROUP` as in a run; no two pairs share one.

    >>> _name_group("pears", 12)
    'pears@12'
    """
    # Behind the last "@" stands the group, so it must have none itself: else ("a@b", "c") would be ("a", "b@c").
    return f"{task}@{make_id(group) if '@' in str(group) else group}"


def _choose_columns(file: ParquetFile, columns: ColumnMap) -> tuple[str, ...]:
    """The columns of a Parquet file in which the mapped ones lie."""
    names = file.names()
    chosen: dict[str, None] = {}
    for key, column in columns.columns.items():
        outer = column if column in names else column.partition(".")[0]
        if outer not in names:
            raise FileError(
                f"{file.path}: there is no column {column!r}, which {key!r} is mapped to; {nearest(outer, names)}"
            )
        chosen[outer] = None
    return tuple(chosen)


def _ask_for(key: str) -> str:
    if key == "reward":
        return "a missing score is not a zero: score the attempt or leave it out"
    return f"every row needs {'an' if key[0] in 'ai' else 'a'} {key}: fill it in, or leave the row out"


def _takes_null(key: str) -> bool:
    return key.startswith(EXTRA) or KEYS[key].takes_null


def _read_as_it_is(record: Record, column: str) -> Any:
    return to_json_value(record.fields[column])


def _read_id(record: Record, column: str) -> str | int:
    value = to_json_value(record.fields[column])
    if isinstance(value, list | dict):
        return make_id(_write_json(record, column))
    if isinstance(value, float) and value.is_integer():  # a data frame's integers, once some row had none
        return int(value)
    return record.id(column)


def _read_number(record: Record, column: str) -> float:
    value = record.fields[column]
    return float(value) if isinstance(value, bool) else record.number(column)


def _read_text(record: Record, column: str) -> str | None:
    value = record.fields[column]
    return value if value is None or isinstance(value, str) else _write_json(record, column)


def _write_json(record: Record, column: str) -> str:
    try:
        return to_canonical_json(to_json_value(record.fields[column]))
    except (TypeError, ValueError, RecursionError):
        raise record.error(
            column, f"is {quote_json(record.fields[column])}", "it takes text, or what JSON has"
        ) from None


_READERS: Mapping[Kind, Callable[[Record, str], Any]] = {
    kinds.ID: _read_id,
    kinds.NUMBER: _read_number,
    kinds.COUNT: Record.integer,
    kinds.INTEGER: Record.integer,
    kinds.FLAG: Record.truth,
    kinds.TEXT: _read_text,
    kinds.TEXT_OR_NULL: _read_text,
    kinds.INTEGERS: Record.integers,
    kinds.NUMBERS: Record.numbers,
}
"""How a value of each kind is read; every other is taken as it is, and checked with its row."""
