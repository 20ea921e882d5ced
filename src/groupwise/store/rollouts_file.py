"""Reads a rollouts file row by row, or in chunks of whole groups, and writes one, whole or not at all."""

from __future__ import annotations

import gzip
import hashlib
import json
import marshal
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from heapq import merge
from itertools import chain, groupby, starmap
from operator import itemgetter
from pathlib import Path
from tempfile import NamedTemporaryFile, TemporaryDirectory
from typing import IO, Any, NamedTuple, cast

import numpy as np

from groupwise.data.column_checks import Column
from groupwise.data.field_kinds import ID, KEPT, STATE
from groupwise.data.records import Trajectory
from groupwise.data.step_columns import make_rows
from groupwise.data.step_fields import COLUMNS, FIRST_OBSERVATION, STEP_FIELDS
from groupwise.data.step_table import OWN_FIELDS, StepTable
from groupwise.store import rollout_lines
from groupwise.store.parquet import ParquetFile, Shape, read_parquet_header, read_parquet_rows, write_parquet
from groupwise.store.rollout_rows import (
    KEYS,
    Id,
    RolloutRow,
    Uniformity,
    describe_value_fault,
    find_row_fault,
    to_json_value,
)
from groupwise.system.errors import FileError, RecordError
from groupwise.system.files import write_atomic
from groupwise.system.json_text import is_shallow, parse_json, to_canonical_json

CHUNK_BYTES = 32 << 20
HELD_BYTES = 8 << 20
COMPRESSION = 16
"""Assumed compression ratio of a compressed file."""


ReadRows = Callable[[rollout_lines.Progress | None, Counter[str]], Iterator[tuple[int, RolloutRow]]]
"""Yields every row of a file with its line, unchecked, and counts records that cannot be rows."""


@dataclass(frozen=True, eq=False)
class RolloutsFile:
    """An opened rollouts file: its header was read, its rows were not.

    Worked example: `for chunk in RolloutsFile.open("rollouts.jsonl").chunks(): algorithm.advantage(chunk.table())`
    reads a file of any size and holds one chunk at a time.
    """

    path: Path
    meta: Mapping[str, Any]
    """The writer's notes in the header."""
    size: int
    unit: str
    """How rows are numbered: "line" or "row"."""
    is_compressed: bool
    """Whether the file is smaller than its content."""
    read_rows: ReadRows
    left_out: Counter[str] = field(default_factory=Counter)
    """The records of another program's file that could not be rows, counted by reason, in the last pass."""

    @classmethod
    def open(cls, path: str | Path) -> RolloutsFile:
        """Open a groupwise rollouts file: JSON Lines (plain or gzip) or Parquet, recognised by the content."""
        path = Path(path)
        if rollout_lines.read_first_bytes(path) == rollout_lines.PARQUET_MAGIC:
            parquet = ParquetFile(path)
            header = read_parquet_header(parquet)
            return cls.of(parquet, partial(read_parquet_rows, parquet, header.get("json", ())), header.get("meta", {}))
        lines = rollout_lines.JsonLines.open(path)
        return cls.of(lines, partial(rollout_lines.read_jsonl_rows, lines), rollout_lines.read_jsonl_meta(lines))

    @classmethod
    def of(
        cls, file: rollout_lines.JsonLines | ParquetFile, read_rows: ReadRows, meta: Mapping[str, Any]
    ) -> RolloutsFile:
        size = file.path.stat().st_size
        return cls(file.path, meta, size, file.unit, file.is_compressed, read_rows)

    def rows(self, progress: rollout_lines.Progress | None = None) -> Iterator[RolloutRow]:
        return (row for _, row in self._check_rows(progress, looks_inside=True))

    def hold(self) -> RolloutsFile:
        """The same file for several passes: the rows of a small file are parsed once and kept."""
        if self.size * (COMPRESSION if self.is_compressed else 1) > HELD_BYTES:
            return self
        rows = list(self.read_rows(None, self.left_out))
        return replace(self, read_rows=lambda progress, left_out: iter(rows))

    def places(self, progress: rollout_lines.Progress | None = None) -> dict[tuple[Id, Id, Id], None]:
        """Group, task and rollout of every row, without duplicates. The rest of the rows is not checked."""
        places: dict[tuple[Id, Id, Id], None] = {}
        for number, row in self.read_rows(progress, self.left_out):
            try:
                place = row["group"] if "group" in row else row["task"], row["task"], row["rollout"]
                are_ids = all(map(ID.accepts, place))
            except (AttributeError, KeyError, TypeError):
                are_ids = False
            if not are_ids:
                raise FileError(f"{self._name_row(number)}: {find_row_fault(row)}", row=number)
            places[place] = None
        if not places:
            raise self._make_empty_error()
        return places

    def chunks(
        self,
        progress: rollout_lines.Progress | None = None,
        chunk_bytes: int = CHUNK_BYTES,
        *,
        keeps_tokens: bool = False,
        group: Id | None = None,
    ) -> Iterator[RolloutsChunk]:
        """Stream the file in chunks that hold whole groups, whatever the order of its rows.

        A file of up to twice `chunk_bytes` is one chunk. A larger one is first reduced to the columns that advantages
        need, sorted into temporary files, and read chunk by chunk. The temporary files are always removed at the end.

        Args:
            progress: called from time to time with the number of bytes that were read.
            chunk_bytes: approximate size of a chunk's reduced rows.
            keeps_tokens: whether chunks hold the token columns, for advantages inside a step.
            group: read only the rows of this group, as one chunk; None = all rows.
        """
        expected = self.size * (COMPRESSION if self.is_compressed else 1)
        names = ColumnNames()
        rows = self._reduce_rows(progress, names, keeps_tokens=keeps_tokens, group=group)
        if group is not None or expected <= 2 * chunk_bytes:
            yield self._build_chunk(rows, names)
            return
        with TemporaryDirectory(prefix="groupwise-rollouts-") as folder:
            # All rows are sorted before the first chunk comes out, so the names are complete.
            for chunk in cut_into_whole_groups(rows, Path(folder), chunk_bytes=chunk_bytes):
                yield self._build_chunk(chunk, names)

    def _build_chunk(self, rows: Iterable[ReducedRow], names: ColumnNames) -> RolloutsChunk:
        chunk = RolloutsChunk(path=str(self.path), unit=self.unit, columns={}, tasks=[], lines=[], tokens=[])
        columns, known = chunk.columns, dict[Any, Any]()
        for before, row in enumerate(rows):
            for name, value in row.columns.items():
                column = columns.get(name)
                if column is None:
                    columns[name] = column = [None] * before
                # Ids, states and actions repeat: one object for equal texts keeps a chunk small.
                column.append(known.setdefault(value, value) if type(value) is str else value)
            if len(row.columns) < len(columns):
                for column in columns.values():
                    if len(column) == before:
                        column.append(None)
            chunk.tasks.append(known.setdefault(row.task, row.task))
            chunk.lines.append(row.number)
            if row.tokens is not None:
                chunk.tokens.append(row.tokens)
        whole = {name: columns.get(name) or [None] * len(chunk) for name in names.columns()}
        for name, meaning in _ABSENT.items():
            if name in whole:
                whole[name] = [meaning if value is None else value for value in whole[name]]
        return replace(chunk, columns=whole)

    def _reduce_rows(
        self, progress: rollout_lines.Progress | None, names: ColumnNames, *, keeps_tokens: bool, group: Id | None
    ) -> Iterator[ReducedRow]:
        for number, row in self._check_rows(progress, looks_inside=keeps_tokens, group=group):
            try:
                reduced = reduce_row(number, row, keeps_tokens=keeps_tokens)
                names.add(reduced.columns)
            except RecordError as error:
                raise FileError(f"{self._name_row(number)}: {error}", row=number) from None
            yield reduced

    def _check_rows(
        self, progress: rollout_lines.Progress | None, *, looks_inside: bool, group: Id | None = None
    ) -> Iterator[tuple[int, RolloutRow]]:
        self.left_out.clear()
        uniformity = Uniformity(self.unit)
        number = 0
        for number, row in self.read_rows(progress, self.left_out):
            if group is not None and row.get("group", row["task"]) != group:
                continue
            fault = find_row_fault(row, looks_inside=looks_inside) or uniformity.find_fault(number, row)
            if fault is not None:
                raise FileError(f"{self._name_row(number)}: {fault}", row=number)
            yield number, row
        if not number:
            raise self._make_empty_error()

    def _name_row(self, number: int) -> str:
        return f"{self.path}, {self.unit} {number}"

    def _make_empty_error(self) -> FileError:
        reasons = ", ".join(f"{count} {reason}" for reason, count in self.left_out.items())
        return FileError(
            f"{self.path}: the file holds no rows{f' (left out: {reasons})' if reasons else ''}; "
            "record at least one step"
        )


# Reduced rows: only what advantages need. Token lists become a count, and texts that are only shown are dropped.

_BULK = tuple(field.name for field in STEP_FIELDS if field.bulk)
_STATES = tuple(name for name, kind in KEYS.items() if kind is STATE)
_ABSENT: dict[str, Any] = {
    field.name: field.absent
    for field in STEP_FIELDS
    if field.in_rows and not field.bulk and field.absent is not None and field.absent is not KEPT
}
"""The value of an absent key, if it is not 'unknown'."""

TOKEN_KEYS = ("response_ids", "logp_behaviour", "entropy", "forced", "segment")
"""The keys that a token table reads."""


class ReducedRow(NamedTuple):
    """The part of a row that advantages need."""

    number: int
    """Line (or row) of the file."""
    task: Id
    """Id of the task, also if `columns` has the group in its place."""
    columns: dict[str, Any]
    """Its values in the columns of a step table; `task` holds the scope: the group if given, else the task."""
    tokens: dict[str, Any] | None = None
    """Its token columns for a token table; None = not kept."""


def reduce_row(number: int, columns: RolloutRow, *, keeps_tokens: bool = False) -> ReducedRow:
    """Reduce a row whose states are not checked yet. The row itself is changed."""
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
        if columns["step"] == 0:
            content = text.encode("utf-8", "surrogatepass")
            columns[FIRST_OBSERVATION] = hashlib.blake2b(content, digest_size=12).hexdigest()
    for name in _STATES:
        if type(columns.get(name)) in (list, dict):
            columns[name] = _write_state(name, columns[name])
    if "extra" in columns:
        columns |= columns.pop("extra")
    return ReducedRow(number, task, columns, tokens)


def _write_state(name: str, value: Any) -> str:
    """The canonical text of a state; an error for NaN, infinities and endless nesting."""
    try:
        text = to_canonical_json(value, takes_nan=False)
        if is_shallow(text, value):
            return text
    except (TypeError, ValueError, RecursionError):
        pass
    raise RecordError(describe_value_fault(name, value))


MAX_COLUMNS = 1000
"""Of a file: each column takes space in every row, so new names in every row would grow quadratically."""


class ColumnNames:
    """The columns of all rows of a file, and whether any row has a sampled token.

    All chunks of a file have the same columns, even if no row of a chunk has a value.
    """

    def __init__(self) -> None:
        self.seen: dict[str, None] = {}
        self.has_tokens = False

    def add(self, columns: dict[str, Any]) -> None:
        """Add one row's columns; an error if there are too many."""
        if not columns.keys() <= self.seen.keys():
            self.seen |= dict.fromkeys(columns)
            if len(self.seen) > MAX_COLUMNS:
                raise RecordError(
                    f"with this row the file has more than {MAX_COLUMNS} columns in 'extra'; use few names, and put "
                    "what differs between rows into values"
                )
        if not self.has_tokens and columns.get("tokens"):
            self.has_tokens = True

    def columns(self) -> list[str]:
        """The columns of every chunk; `tokens` is left out if no row has a sampled token."""
        return [name for name in self.seen if name != "tokens" or self.has_tokens]


# An external merge sort makes whole groups of rows in any order, within bounded memory: pieces of the file are sorted
# by group in memory, written to temporary files, and merged. The rows are written with `marshal`, which is faster than
# JSON; they never leave this process and its private folder.

MAX_RUNS = 256
"""Number of temporary files that are merged together."""
_RUN_BYTES = 1 << 20
_ROW_BYTES, _TOKEN_BYTES = 300, 9
"""Approximate size of a reduced row without its texts, and of one number per token."""
_ScopeRows = tuple[Any, list[tuple[Any, ...]], int]
"""A scope, some of its rows, and their bytes in a file."""


def cut_into_whole_groups(
    rows: Iterable[ReducedRow], folder: Path, *, chunk_bytes: int
) -> Iterator[Iterator[ReducedRow]]:
    """The rows in chunks of whole groups, of about `chunk_bytes` and at least one group; `folder` is for temporary
    files."""
    merged: list[_Run] = []
    runs: list[_Run] = []
    for pending in _cut_by_size(rows, min(_RUN_BYTES, chunk_bytes)):
        by_scope: dict[Any, list[tuple[Any, ...]]] = {}
        for row in pending:
            by_scope.setdefault(row.columns["task"], []).append(tuple(row))
        runs.append(_Run.write(((scope, by_scope[scope], 0) for scope in sorted(by_scope)), folder))
        if len(runs) == MAX_RUNS:
            merged, runs = [*merged, _Run.write(_merge(runs), folder)], []
    number = size = 0
    scope = None

    def number_chunk(rows_of_scope: _ScopeRows) -> int:
        nonlocal number, size, scope
        if rows_of_scope[0] != scope and size > chunk_bytes:
            number, size = number + 1, 0
        scope = rows_of_scope[0]
        size += rows_of_scope[2]
        return number

    for _, chunk in groupby(_merge(merged + runs), key=number_chunk):
        yield starmap(ReducedRow, chain.from_iterable(map(itemgetter(1), chunk)))


def _cut_by_size(rows: Iterable[ReducedRow], size: int) -> Iterator[list[ReducedRow]]:
    """The rows in pieces of about `size` bytes."""
    piece: list[ReducedRow] = []
    left = size
    for row in rows:
        piece.append(row)
        left -= _ROW_BYTES + sum([len(value) for value in row.columns.values() if type(value) is str])
        if row.tokens:
            left -= sum([_TOKEN_BYTES * len(value) for value in row.tokens.values() if type(value) is list])
        if left <= 0:
            yield piece
            piece, left = [], size
    if piece:
        yield piece


class _Run(NamedTuple):
    """A temporary file of rows, sorted by scope."""

    path: Path
    sizes: list[int]
    """Bytes of the rows of each scope."""

    @classmethod
    def write(cls, sorted_rows: Iterable[_ScopeRows], folder: Path) -> _Run:
        sizes = []
        try:
            with NamedTemporaryFile(dir=folder, delete=False) as file:
                for scope, rows, _ in sorted_rows:
                    sizes.append(file.write(marshal.dumps((scope, rows))))
        except OSError as error:
            raise FileError(
                f"{folder}: cannot write temporary files ({error.strerror}); "
                "make room there, or set TMPDIR to a folder with as much room as the rollouts file takes"
            ) from error
        return cls(Path(file.name), sizes)

    def read(self) -> Iterator[_ScopeRows]:
        """The rows in the order of the file, which is removed at the end."""
        with self.path.open("rb") as file:
            for size in self.sizes:
                scope, rows = marshal.loads(file.read(size))
                yield scope, rows, size
        self.path.unlink()


def _merge(runs: list[_Run]) -> Iterator[_ScopeRows]:
    """The rows of all runs, sorted by scope; within a scope in the order of the file."""
    return merge(*(run.read() for run in runs), key=itemgetter(0))


# A chunk of a rollouts file: whole groups, as the columns of a step table.

_ROWS_IN_MESSAGE = re.compile(r"\brow(s?) (\d+)(?: and (\d+))?")


@dataclass(frozen=True, eq=False, kw_only=True)
class RolloutsChunk:
    """The rows of whole groups.

    Worked example: a file of two tasks with two rows each gives one chunk with
    `columns == {"task": ["t1", "t1", "t2", "t2"], "rollout": [0, 1, 0, 1], ...}` and `lines == [2, 3, 4, 5]`.
    """

    path: str
    unit: str
    """What `lines` counts: lines of a JSON Lines file, rows of a Parquet file."""
    columns: dict[str, list[Any]]
    """The arguments of `StepTable.from_columns`. `task` holds the scope of comparison: the group if given."""
    tasks: list[Id]
    """Id of each row's task, also if `columns` has the group in its place."""
    lines: list[int]
    """Line of each row in the file, from 1."""
    tokens: list[dict[str, Any]] = field(default_factory=list)
    """The token columns of each row, if they are kept; else empty."""

    def __len__(self) -> int:
        return len(self.lines)

    def table(self) -> StepTable:
        """The chunk as a step table; an error names the line of a wrong row."""
        columns: dict[str, Column] = {**self.columns}
        for name, column in self.columns.items():
            # Further columns of floats are arrays, like the columns of a stateful part in training.
            if name not in COLUMNS and name not in OWN_FIELDS and all(type(value) is float for value in column):
                columns[name] = np.array(column, dtype=np.float64)
        try:
            return StepTable.from_columns(**columns)
        except RecordError as error:
            if error.row is None:
                raise FileError(f"{self.path}: {error}") from error

            def name_lines(match: re.Match[str]) -> str:
                first = f"{self.unit}{match[1]} {self.lines[int(match[2])]}"
                return first if match[3] is None else f"{first} and {self.lines[int(match[3])]}"

            # The table names rows of the chunk, but the user knows the lines of the file.
            message = _ROWS_IN_MESSAGE.sub(name_lines, str(error), count=1)
            raise FileError(f"{self.path}: {message}", row=self.lines[error.row]) from error


# Writing.


def write_rollouts(
    path: str | Path, rows: Iterable[Mapping[str, Any]] | Iterable[Trajectory], *, meta: Mapping[str, Any] | None = None
) -> int:
    """Write a rollouts file and return the number of its rows.

    The file is written atomically: readers see the old file or the new one, and an error leaves nothing behind.

    Args:
        path: its ending decides the format: `.jsonl`, `.jsonl.gz` or `.parquet`.
        rows: rows, or trajectories (one row per step).
        meta: notes for the header; JSON values.
    """
    path = Path(path)
    write = next((write for suffix, write in _WRITERS.items() if path.name.endswith(suffix)), None)
    if write is None:
        raise FileError(f"{path}: the name has no known ending; use {', '.join(list(_WRITERS)[:-1])} or .parquet")
    try:
        rollout_lines.make_header(meta)
    except (TypeError, ValueError, RecursionError) as error:
        raise RecordError(f"meta cannot be written as JSON ({error}); use text, numbers, lists and objects") from None
    if not path.parent.is_dir():
        raise FileError(f"{path}: the folder {path.parent} does not exist; create it first")
    with write_atomic(path, flush=True) as target:
        return write(target, _check_rows(rows), meta)


def _check_rows(rows: Iterable[Any]) -> Iterator[RolloutRow]:
    uniformity = Uniformity("row")
    number = -1
    for number, (where, row) in enumerate(_convert_rows(rows)):
        fault = find_row_fault(row) or uniformity.find_fault(number, row)
        if fault is not None:
            raise RecordError(f"{where or f'row {number}'}: {fault}", row=number)
        yield row
    if number < 0:
        raise RecordError("there are no rows to write; record at least one step")


def _convert_rows(rows: Iterable[Any]) -> Iterator[tuple[str, RolloutRow]]:
    """Convert every row to JSON values; rows of a trajectory come with the name of their step."""
    for entry in rows:
        if isinstance(entry, Trajectory):
            for row in make_rows(entry):
                yield f"trajectory {entry.id!r}, step {row['step']}", _order_keys(row)
        else:
            yield "", _order_keys(entry) if isinstance(entry, Mapping) else entry


def _order_keys(row: Mapping[str, Any]) -> RolloutRow:
    """Put the keys into the order of the format; unknown keys come last, and the check finds them."""
    names = [name for name in KEYS if name in row] + [name for name in row if name not in KEYS]
    try:
        return {name: to_json_value(row[name]) for name in names}
    except RecursionError:
        return dict(row)  # for example a list that contains itself; the check finds it


def _write_jsonl(target: Path, rows: Iterator[RolloutRow], meta: Mapping[str, Any] | None) -> int:
    with target.open("wb") as file:
        return sum(1 for _ in _write_lines(file, rows, meta))


def _write_gzip(target: Path, rows: Iterator[RolloutRow], meta: Mapping[str, Any] | None) -> int:
    # Without name and time: the same rows give the same bytes.
    with target.open("wb") as raw, gzip.GzipFile("", "wb", compresslevel=6, fileobj=raw, mtime=0) as file:
        return sum(1 for _ in _write_lines(cast(IO[bytes], file), rows, meta))


def _write_parquet(target: Path, rows: Iterator[RolloutRow], meta: Mapping[str, Any] | None) -> int:
    """Write the rows to a temporary file first: a column's type is known only after the last row."""
    shape = Shape()
    with TemporaryDirectory(prefix="groupwise-rollouts-") as folder:
        spool = Path(folder) / "rows.jsonl"
        with spool.open("wb") as file:
            num_rows = 0
            for row in _write_lines(file, rows, None):
                shape.add(row)
                num_rows += 1
        with spool.open("rb") as file:
            next(file)
            write_parquet(target, ((len(line), parse_json(line.decode())) for line in file), shape, meta)
    return num_rows


_WRITERS = {".jsonl": _write_jsonl, ".jsonl.gz": _write_gzip, ".parquet": _write_parquet}


def _write_lines(file: IO[bytes], rows: Iterator[RolloutRow], meta: Mapping[str, Any] | None) -> Iterator[RolloutRow]:
    """Write the header and the rows, and yield each row after it is written."""
    file.write(rollout_lines.make_header(meta).encode() + b"\n")
    for row in rows:
        try:
            line = json.dumps(row, ensure_ascii=False, allow_nan=False).encode()
        except UnicodeEncodeError:
            line = json.dumps(row).encode()  # a lone surrogate is not UTF-8, but its escape is JSON
        file.write(line + b"\n")
        yield row
