"""Rollouts as Parquet: a column for every key, the header in the file's metadata.

A column has one type. Where the values of a key do not fit one (states that are texts in one row and lists in
another, the objects in `extra`), the column holds JSON text and the header names it under `json`.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from groupwise.data.field_kinds import Storage
from groupwise.store.rollout_lines import FORMAT, NOT_OURS, Progress, find_header_fault, is_header, make_header
from groupwise.store.rollout_rows import KEYS, RolloutRow, quote_key
from groupwise.system.errors import FileError, RecordError
from groupwise.system.json_text import parse_json
from groupwise.system.text import quote_line

_GROUP_BYTES = 16 << 20
_GROUP_ROWS = 50_000


def read_parquet_header(parquet: ParquetFile) -> dict[str, Any]:
    """The header in the metadata of a groupwise Parquet file."""
    with parquet.open() as file:
        text = parquet.read_notes(file).get(FORMAT.encode())
    try:
        header = parse_json(text.decode("utf-8")) if text is not None else None
    except ValueError as error:
        raise FileError(
            f"{parquet.path}: the header in the file's metadata is not JSON ({error}); write the file again"
        ) from None
    if not is_header(header):
        raise FileError(f"{parquet.path}: the file's metadata has no header under the key {FORMAT!r}; {NOT_OURS}")
    fault = find_header_fault(header)
    if fault is not None:
        raise FileError(f"{parquet.path}, header: {fault}")
    return header


def read_parquet_rows(
    parquet: ParquetFile, coded: Collection[str], progress: Progress | None, left_out: Counter[str]
) -> Iterator[tuple[int, RolloutRow]]:
    """Every row; a null is the same as an absent key, where the key does not take nulls. `coded` columns hold JSON."""
    for number, cells in parquet.values(progress):
        row: RolloutRow = {}
        for name, value in cells.items():
            if value is None:
                if name in KEYS and KEYS[name].takes_null:
                    row[name] = None
            else:
                row[name] = value
                if name in coded:
                    try:
                        row[name] = parse_json(value)
                    except (ValueError, TypeError) as error:
                        raise FileError(
                            f"{parquet.path}, row {number}: column {name!r} is declared as JSON text in the header, "
                            f"but is not ({error}); write the file again"
                        ) from None
        yield number, row


class Shape:
    """What a Parquet file of the rows so far would look like: which columns, and of which types."""

    def __init__(self) -> None:
        self._kinds: dict[str, set[type]] = {}

    def add(self, row: RolloutRow) -> None:
        """Note one row."""
        for name, value in row.items():
            self._kinds.setdefault(name, set()).add(type(value))

    def json_columns(self) -> tuple[str, ...]:
        """Keys whose values may be of several types, and are: they need JSON text."""
        coded = []
        for name, kind in KEYS.items():
            kinds = self._kinds.get(name, set()) - {type(None)}
            is_plain = kinds <= {str} or (kind.storage is Storage.FREE_OR_INTEGER and kinds <= {int})
            if kind.storage in (Storage.FREE, Storage.FREE_OR_INTEGER) and not is_plain:
                coded.append(name)
        return tuple(coded)

    def schema(self, pyarrow: Any, meta: Mapping[str, Any] | None) -> Any:
        """The Arrow schema, header included."""
        coded = self.json_columns()
        fields = [
            pyarrow.field(name, pyarrow.string() if name in coded else self._type(pyarrow, name))
            for name in KEYS
            if name in self._kinds
        ]
        return pyarrow.schema(fields, metadata={FORMAT: make_header(meta, json_columns=coded)})

    def _type(self, pyarrow: Any, name: str) -> Any:
        storage = KEYS[name].storage
        if storage is Storage.INTEGERS:
            return pyarrow.list_(pyarrow.int64())
        if storage is Storage.NUMBERS:
            return pyarrow.list_(pyarrow.float64())
        if storage is Storage.NUMBER:
            return pyarrow.float64()
        if storage is Storage.FLAG:
            return pyarrow.bool_()
        return pyarrow.int64() if int in self._kinds[name] else pyarrow.string()


def write_parquet(
    target: Path, rows: Iterable[tuple[int, RolloutRow]], shape: Shape, meta: Mapping[str, Any] | None
) -> None:
    """Write rows of a known shape, each with the bytes it takes as JSON, in row groups of bounded size."""
    pyarrow = import_pyarrow()
    schema = shape.schema(pyarrow, meta)
    coded = frozenset(shape.json_columns())
    with pyarrow.parquet.ParquetWriter(target, schema, compression="zstd") as writer:
        pending: list[dict[str, Any]] = []
        pending_bytes = 0
        for size, row in rows:
            for name in coded.intersection(row):
                if row[name] is not None:
                    row[name] = json.dumps(row[name], ensure_ascii=False, allow_nan=False)
            pending.append(row)
            pending_bytes += size
            if pending_bytes >= _GROUP_BYTES or len(pending) >= _GROUP_ROWS:
                writer.write_table(_make_table(pyarrow, pending, schema))
                pending, pending_bytes = [], 0
        if pending:
            writer.write_table(_make_table(pyarrow, pending, schema))


def _make_table(pyarrow: Any, rows: list[dict[str, Any]], schema: Any) -> Any:
    try:
        return pyarrow.Table.from_pylist(rows, schema=schema)
    except (pyarrow.ArrowException, OverflowError, UnicodeEncodeError) as error:
        raise RecordError(
            f"the rows do not fit into Parquet columns ({error}); write JSON Lines (`.jsonl`) instead"
        ) from error


# A Parquet file of whoever wrote it, read a few rows at a time: a column that would unfold without end is refused.

_BATCH_ROWS = 256
_MAX_ENTRIES = 8 << 20
"""Entries of a list in one row, on average over a row group: a page of a few bytes can repeat one entry without end."""


def import_pyarrow() -> Any:
    """The package that reads and writes Parquet; where it is missing, a sentence says how to get it."""
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise FileError("Parquet files need pyarrow; install it with `pip install 'groupwise[parquet]'`") from None
    return pyarrow


@dataclass(frozen=True)
class ParquetFile:
    """A Parquet file as a stream of rows; rows count from 1."""

    path: Path
    columns: tuple[str, ...] | None = None
    """The columns to read, with all that lies within them; None = every one."""
    unit: ClassVar[str] = "row"
    is_compressed: ClassVar[bool] = True

    def values(self, progress: Progress | None = None) -> Iterator[tuple[int, dict[str, Any]]]:
        """Every row as an object with its number; what a row does not have is None."""
        size = self.path.stat().st_size
        with self.open() as file:
            total, number = max(1, file.metadata.num_rows), 0
            for names, columns in self.read_batches(file):
                for cells in zip(*columns, strict=True):
                    number += 1
                    yield number, dict(zip(names, cells, strict=True))
                if progress is not None:
                    progress(size * number // total)

    def open(self) -> Any:
        """The file as pyarrow has it, its footer read."""
        pyarrow = import_pyarrow()
        with self._report_damage():
            # Without read-ahead: a row group may be as large as the file.
            return pyarrow.parquet.ParquetFile(self.path, buffer_size=1 << 20, pre_buffer=False)

    def read_notes(self, file: Any) -> Mapping[bytes, bytes]:
        """What the file's metadata holds by key."""
        with self._report_damage():
            return file.schema_arrow.metadata or {}

    def names(self) -> list[str]:
        """The columns that the file has, without what lies within them."""
        with self.open() as file, self._report_damage():
            return list(file.schema_arrow.names)

    def read_batches(self, file: Any) -> Iterator[tuple[list[str], list[list[Any]]]]:
        """Read the columns of some rows at a time: their names and their values."""
        with self._report_damage():
            metadata = file.metadata
            for group in map(metadata.row_group, range(metadata.num_row_groups)):
                for column in map(group.column, range(group.num_columns)):
                    # Lists that no row of a rollouts file has are refused before they are unfolded.
                    path: str = column.path_in_schema
                    is_read = self.columns is None or any(f"{path}.".startswith(f"{name}.") for name in self.columns)
                    if is_read and column.num_values > _MAX_ENTRIES * max(1, group.num_rows):
                        raise FileError(
                            f"{self.path}: column {quote_key(path)} holds {column.num_values} entries in "
                            f"{group.num_rows} rows; a row holds one step: write the file again"
                        )
            batches = file.iter_batches(batch_size=_BATCH_ROWS, columns=self.columns)
        while True:
            with self._report_damage():
                batch = next(batches, None)
                if batch is None:
                    return
                names, columns = list(batch.schema.names), [column.to_pylist() for column in batch.columns]
            yield names, columns

    @contextmanager
    def _report_damage(self) -> Iterator[None]:
        """Say in one sentence that a file is damaged, for which pyarrow has many words."""
        try:
            yield
        except FileError:
            raise
        except Exception as error:
            reason = quote_line(str(error).strip(), limit=200).rstrip(".") or type(error).__name__
            raise FileError(
                f"{self.path}: the Parquet file is cut off or corrupt ({reason}); copy it again, or write it again"
            ) from error
