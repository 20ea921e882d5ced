"""Writes a rollouts file, whole or not at all."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO, Any, cast

from groupwise.data.records import Trajectory
from groupwise.data.step_columns import make_rows
from groupwise.store.parquet import Shape, write_parquet
from groupwise.store.rollout_lines import make_header
from groupwise.store.rollout_rows import KEYS, RolloutRow, Uniformity, find_row_fault, to_json_value
from groupwise.system.errors import FileError, RecordError
from groupwise.system.files import write_atomic
from groupwise.system.json_text import parse_json


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
        make_header(meta)
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
    file.write(make_header(meta).encode() + b"\n")
    for row in rows:
        try:
            line = json.dumps(row, ensure_ascii=False, allow_nan=False).encode()
        except UnicodeEncodeError:
            line = json.dumps(row).encode()  # a lone surrogate is not UTF-8, but its escape is JSON
        file.write(line + b"\n")
        yield row
