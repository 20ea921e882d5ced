"""Reads any JSON Lines or Parquet file, with a map from the keys of a row to the file's columns.

A row of the file is a rollout, or a step of a rollout:

- without a column for `rollout`, every row is its own rollout, numbered within its task (or group);
- without a column for `index`, the rows of a rollout are its steps, in the order of the file;
- a column for `group` (for example the update) divides the rollouts of each task; different tasks stay apart.

Values are converted: true and false are the rewards 1 and 0; lists and objects (such as a chat's messages) become
canonical JSON text for a text, and its digest for an id. Null and absent are the same. The columns of ids and rewards
must have a value in every row, all other columns in at least one row.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from groupwise.data import field_kinds as kinds
from groupwise.data.field_kinds import Kind
from groupwise.data.step_fields import RESERVED_NAMES
from groupwise.store.foreign_record import Record, make_id
from groupwise.store.parquet import ParquetFile
from groupwise.store.rollout_lines import JsonLines, Progress
from groupwise.store.rollout_rows import KEYS, RolloutRow, quote_json, quote_key, to_json_value
from groupwise.system.errors import ConfigError, FileError, nearest
from groupwise.system.json_text import to_canonical_json

_IN_EVERY_ROW = ("task", "group", "rollout", "step", "reward")


def choose_columns(file: JsonLines | ParquetFile, columns: ColumnMap) -> JsonLines | ParquetFile:
    """The file to read. Of a Parquet file only the mapped columns are read, and they must exist."""
    if not isinstance(file, ParquetFile):
        return file
    names = file.names()
    chosen: dict[str, None] = {}
    for key, column in columns.columns.items():
        outer = column if column in names else column.partition(".")[0]
        if outer not in names:
            raise FileError(
                f"{file.path}: there is no column {column!r}, which {key!r} is mapped to; {nearest(outer, names)}"
            )
        chosen[outer] = None
    return ParquetFile(file.path, columns=tuple(chosen))


def read_mapped_rows(
    file: JsonLines | ParquetFile, columns: Mapping[str, str], progress: Progress | None, left_out: Counter[str]
) -> Iterator[tuple[int, RolloutRow]]:
    """Every row of a mapped file. Without a column, rollouts and steps are numbered in the order of the file."""
    seen: Counter[Any] = Counter()
    unseen = dict(columns)
    last: dict[str, Any] = {}
    for number, value in file.values(progress):
        if not isinstance(value, dict):
            raise FileError(
                f"{file.path}, {file.unit} {number}: found {quote_json(value)} instead of an object with columns",
                row=number,
            )
        row = _make_row(file, number, value, columns, unseen)
        if "group" in row:
            row["group"] = _name_group(row["task"], row["group"])
        scope = row.get("group", row["task"])
        if "rollout" not in columns:
            row["rollout"], row["step"] = seen[scope], 0
            seen[scope] += 1
        elif "step" not in row:
            place = (scope, row["rollout"])
            row["step"] = seen[place]
            seen[place] += 1
        last = value
        yield number, row
    for key, column in unseen.items():
        if last:
            raise FileError(
                f"{file.path}: no {file.unit} has a column {column!r}, which {key!r} is mapped to; "
                f"{point_to_nearest(last, column)}"
            )


def _make_row(
    file: JsonLines | ParquetFile,
    number: int,
    fields: dict[str, Any],
    columns: Mapping[str, str],
    unseen: dict[str, str],
) -> RolloutRow:
    row: RolloutRow = {}
    for key, column in columns.items():
        value = find_value(fields, column)
        fault = None
        if is_missing(value):
            fault = f"no column {column!r}; {point_to_nearest(fields, column)}" if key in _IN_EVERY_ROW else ""
        else:
            unseen.pop(key, None)
        if value is None and key in _IN_EVERY_ROW:
            article = "an" if key[0] in "ai" else "a"
            advice = f"every row needs {article} {key}: fill it in, or leave the row out"
            if key == "reward":
                advice = "a missing score is not a zero: score the rollout or leave it out"
            fault = f"column {column!r} is null; {advice}"
        if fault:
            raise FileError(f"{file.path}, {file.unit} {number}: {fault}", row=number)
        if fault is not None or (value is None and not key.startswith(EXTRA) and not KEYS[key].takes_null):
            continue
        if key.startswith(EXTRA):
            row.setdefault("extra", {})[key.removeprefix(EXTRA)] = to_json_value(value)
        else:
            record = Record(file.path, number, {column: value}, unit=file.unit)
            read = _READERS.get(KEYS[key])
            row[key] = to_json_value(value) if read is None else read(record, column)
    return row


def _name_group(task: str | int, group: str | int) -> str:
    """The unique id of a task's group, `TASK@GROUP` as in a run.

    >>> _name_group("pears", 12)
    'pears@12'
    """
    # The group is the text after the last "@": with another "@" in it, ("a@b", "c") would equal ("a", "b@c").
    return f"{task}@{make_id(group) if '@' in str(group) else group}"


def _read_id(record: Record, column: str) -> str | int:
    value = to_json_value(record.fields[column])
    if isinstance(value, list | dict):
        return make_id(_write_json(record, column))
    if isinstance(value, float) and value.is_integer():  # a data frame stores integers so if a row has none
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
"""The readers of some kinds. Values of all other kinds are taken as they are, and checked with their row."""


# The column map: `task=prompt_id,reward=score`.

EXTRA = "extra."
"""Prefix of the names of further columns."""
REQUIRED = ("task", "reward")
"""Keys that every map needs."""
EXAMPLE = "task=prompt_id,reward=score"

_MAPPED_KEYS = tuple(name for name in KEYS if name != "extra")


@dataclass(frozen=True)
class ColumnMap:
    """A checked map from the keys of a row to the columns of a file.

    Worked example: `ColumnMap.parse(["task=prompt_id,reward=reward_model.score"])` takes the task from the column
    `prompt_id`, and the reward from the field `score` of the objects in the column `reward_model`.
    """

    columns: Mapping[str, str]
    """Column by key of a row; dots lead into objects (`a.b`) and lists (`a.0`, `a.-1` for the last)."""

    def __post_init__(self) -> None:
        for key, column in self.columns.items():
            _check_key(key)
            if not column:
                raise ConfigError(f"column map: key {key!r} has no column; write {key}=COLUMN")
        for key in REQUIRED:
            if key not in self.columns:
                raise ConfigError(f"column map: no column for {key!r}; a map needs task and reward, such as {EXAMPLE}")
        if "step" in self.columns and "rollout" not in self.columns:
            raise ConfigError(
                "column map: 'step' is mapped, but 'rollout' is not; map the rollout's column too, or leave 'step' out"
            )

    @classmethod
    def parse(cls, entries: Iterable[str]) -> ColumnMap:
        """The map of texts such as `task=prompt_id,reward=score`."""
        columns: dict[str, str] = {}
        for entry in (part.strip() for text in entries for part in text.split(",")):
            key, equals, column = (word.strip() for word in entry.partition("="))
            if not equals or not key:
                raise ConfigError(f"column map: {entry!r} is no KEY=COLUMN; write it as in {EXAMPLE}")
            if key in columns:
                raise ConfigError(
                    f"column map: {key!r} stands twice, as {columns[key]!r} and {column!r}; leave one of the two out"
                )
            columns[key] = column
        return cls(columns)


def _check_key(key: str) -> None:
    if key.startswith(EXTRA):
        name = key.removeprefix(EXTRA)
        if not name or name in RESERVED_NAMES:
            fault = f"{name!r} is taken" if name else "it has no name"
            raise ConfigError(f"column map: a further column cannot be {key!r} ({fault}); write extra.NAME=COLUMN")
    elif key not in _MAPPED_KEYS:
        names = nearest(key, _MAPPED_KEYS, listed_by="docs/reference/rollouts.md")
        advice = f"{names} (further columns are extra.NAME)"
        raise ConfigError(f"column map: unknown key {key!r}; {advice}")


# Nested columns: `reward_model.score` is the field `score` of the object in `reward_model`.

_MISSING = object()


def find_value(fields: Mapping[str, Any], path: str) -> Any:
    """The value at a path; None if something on the way is null; see `is_missing` for a path that does not exist.

    A column whose own name has dots comes first.

    >>> find_value({"a": {"b": [1, 2]}, "c.d": 3}, "a.b.-1"), find_value({"c.d": 3}, "c.d")
    (2, 3)
    """
    if path in fields:
        return fields[path]
    value: Any = fields
    for word in path.split("."):
        value = _enter(value, word)
        if value is None or value is _MISSING:
            return value
    return value


def is_missing(value: Any) -> bool:
    """Whether `find_value` found nothing, not even null."""
    return value is _MISSING


def point_to_nearest(fields: Mapping[str, Any], path: str) -> str:
    """Where a path that does not exist ends, and what is there instead."""
    value: Any = fields
    for count, word in enumerate(words := path.split(".")):
        inner = _enter(value, word)
        if inner is not _MISSING:
            value = inner
            continue
        within = f"{quote_key('.'.join(words[:count]))} " if count else ""
        if isinstance(value, Mapping):
            return f"{within and f'within {within}'}{nearest(word, map(str, value))}"
        if isinstance(value, list | tuple):
            return f"{within}holds a list of {len(value)}: continue with a position, from 0, or -1 for the last"
        return f"{within}holds {quote_json(value)}, and nothing within"
    raise AssertionError("the path leads somewhere")


def _enter(value: Any, word: str) -> Any:
    if isinstance(value, Mapping):
        return value.get(word, _MISSING)
    if isinstance(value, list | tuple) and word.removeprefix("-").isdecimal():
        position = int(word)
        return value[position] if -len(value) <= position < len(value) else _MISSING
    return _MISSING
