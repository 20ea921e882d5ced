"""Rollouts as Parquet: one column per key, and the header in the file's metadata.

A column has one type. If the values of a key have several types (for example states that are texts or lists, or the
objects in `extra`), the column holds JSON text, and the header names it under `json`.
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
    """Every row. A null is an absent key, unless the key allows null. The `coded` columns hold JSON text."""
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
    """The columns of the rows so far, and the types of their values."""

    def __init__(self) -> None:
        self._kinds: dict[str, set[type]] = {}

    def add(self, row: RolloutRow) -> None:
        for name, value in row.items():
            self._kinds.setdefault(name, set()).add(type(value))

    def json_columns(self) -> tuple[str, ...]:
        """The keys whose values have several types, which need JSON text."""
        coded = []
        for name, kind in KEYS.items():
            kinds = self._kinds.get(name, set()) - {type(None)}
            is_plain = kinds <= {str} or (kind.storage is Storage.FREE_OR_INTEGER and kinds <= {int})
            if kind.storage in (Storage.FREE, Storage.FREE_OR_INTEGER) and not is_plain:
                coded.append(name)
        return tuple(coded)

    def schema(self, pyarrow: Any, meta: Mapping[str, Any] | None) -> Any:
        coded = self.json_columns()
        types = {
            Storage.INTEGERS: pyarrow.list_(pyarrow.int64()),
            Storage.NUMBERS: pyarrow.list_(pyarrow.float64()),
            Storage.NUMBER: pyarrow.float64(),
            Storage.FLAG: pyarrow.bool_(),
        }
        fields = []
        for name in (key for key in KEYS if key in self._kinds):
            text_or_integer = pyarrow.int64() if int in self._kinds[name] else pyarrow.string()
            type_ = pyarrow.string() if name in coded else types.get(KEYS[name].storage, text_or_integer)
            fields.append(pyarrow.field(name, type_))
        return pyarrow.schema(fields, metadata={FORMAT: make_header(meta, json_columns=coded)})


def write_parquet(
    target: Path, rows: Iterable[tuple[int, RolloutRow]], shape: Shape, meta: Mapping[str, Any] | None
) -> None:
    """Write rows of a known shape, each with its size as JSON, in row groups of bounded size."""
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


# Reading any Parquet file, a few rows at a time and within bounded memory.

_BATCH_ROWS = 256
_MAX_ENTRIES = 8 << 20
"""Mean number of a list's entries per row of a row group: a few bytes can encode billions of equal entries."""


def import_pyarrow() -> Any:
    """The package that reads and writes Parquet; if it is missing, the error says how to install it."""
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise FileError("Parquet files need pyarrow; install it with `pip install 'groupwise[parquet]'`") from None
    return pyarrow


@dataclass(frozen=True)
class ParquetFile:
    """A Parquet file as a stream of rows, numbered from 1."""

    path: Path
    columns: tuple[str, ...] | None = None
    """The columns to read, with their inner columns; None = all."""
    unit: ClassVar[str] = "row"
    is_compressed: ClassVar[bool] = True

    def values(self, progress: Progress | None = None) -> Iterator[tuple[int, dict[str, Any]]]:
        """Every row as an object with its number; missing values are None."""
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
        pyarrow = import_pyarrow()
        with self._report_damage():
            # Without read-ahead: a row group may be as large as the file.
            return pyarrow.parquet.ParquetFile(self.path, buffer_size=1 << 20, pre_buffer=False)

    def read_notes(self, file: Any) -> Mapping[bytes, bytes]:
        with self._report_damage():
            return file.schema_arrow.metadata or {}

    def names(self) -> list[str]:
        """The file's columns, without their inner columns."""
        with self.open() as file, self._report_damage():
            return list(file.schema_arrow.names)

    def read_batches(self, file: Any) -> Iterator[tuple[list[str], list[list[Any]]]]:
        """The names and values of the columns, for some rows at a time."""
        with self._report_damage():
            metadata = file.metadata
            for group in map(metadata.row_group, range(metadata.num_row_groups)):
                for column in map(group.column, range(group.num_columns)):
                    # Lists that are too long for a step are an error before they are decoded.
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
        """Turn pyarrow's many errors into one FileError."""
        try:
            yield
        except FileError:
            raise
        except Exception as error:
            reason = quote_line(str(error).strip(), limit=200).rstrip(".") or type(error).__name__
            raise FileError(
                f"{self.path}: the Parquet file is cut off or corrupt ({reason}); copy it again, or write it again"
            ) from error
