"""Rows in any order become whole groups within bounded memory: sorted into bucket files by a hash of their group.

A bucket holds batches of reduced rows, written with `marshal`: they never leave this process and its private folder,
and reading a row back must cost less than reading it from JSON did.
"""

from __future__ import annotations

import marshal
import zlib
from collections.abc import Iterable, Iterator
from itertools import starmap
from pathlib import Path
from typing import Any, BinaryIO

from groupwise.core.errors import FileError
from groupwise.recordings.reduced_rows import ReducedRow

MAX_BUCKETS = 128
"""Open at a time; what does not fit into so many is split again."""

_PENDING_BYTES = 96 << 10
_ROW_BYTES = 300
"""About what a reduced row takes beside its texts."""
_TOKEN_BYTES = 9
"""What a number of a token takes."""
_REMEMBERED_SCOPES = 100_000
_NUM_HASHES = 2**32


class Bucket:
    """A file of reduced rows, written in batches and read back in the order written."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.scopes: set[Any] = set()
        """Up to two of the scopes in it; a bucket of one scope cannot be split."""
        self._batches: list[int] = []
        self._file: BinaryIO | None = None
        self._pending: list[tuple[int, Any, dict[str, Any], dict[str, Any] | None]] = []
        self._pending_bytes = 0

    @property
    def size(self) -> int:
        """Bytes on disk."""
        return sum(self._batches)

    def add(self, row: ReducedRow) -> None:
        """Append one row."""
        self._pending.append((row.number, row.task, row.columns, row.tokens))
        self._pending_bytes += _ROW_BYTES + sum([len(value) for value in row.columns.values() if type(value) is str])
        if row.tokens:
            self._pending_bytes += sum(
                [_TOKEN_BYTES * len(value) for value in row.tokens.values() if type(value) is list]
            )
        if self._pending_bytes >= _PENDING_BYTES:
            self.flush()

    def close(self) -> None:
        """Close the file; what is pending is lost."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def rows(self) -> Iterator[ReducedRow]:
        """Every row, in the order written."""
        if not self._batches:
            return
        with self.path.open("rb") as file:
            for size in self._batches:
                yield from starmap(ReducedRow, marshal.loads(file.read(size)))

    def remove(self) -> None:
        """Give the disk space back."""
        self.path.unlink(missing_ok=True)

    def flush(self) -> None:
        """Write what is pending."""
        if not self._pending:
            return
        batch = marshal.dumps(self._pending)
        try:
            if self._file is None:
                self._file = self.path.open("wb")
            self._file.write(batch)
            self._file.flush()
        except OSError as error:
            raise FileError(
                f"{self.path.parent}: cannot write temporary files ({error.strerror}); "
                "make room there, or set TMPDIR to a folder with as much room as the rollouts file takes"
            ) from error
        self._batches.append(len(batch))
        self._pending = []
        self._pending_bytes = 0


def sort_into_buckets(rows: Iterable[ReducedRow], folder: Path, *, num_buckets: int, divisor: int = 1) -> list[Bucket]:
    """Sort rows into buckets, all rows of a scope into one.

    Args:
        rows: the rows, in any order.
        folder: where the bucket files go; removed by the caller.
        num_buckets: how many buckets.
        divisor: product of the bucket counts of the splits before this one, so that each split uses other digits of
            the hash.
    """
    folder.mkdir(exist_ok=True)
    buckets = [Bucket(folder / f"{number:03d}") for number in range(num_buckets)]
    bucket_of: dict[Any, Bucket] = {}
    try:
        for row in rows:
            scope = row.columns["task"]
            bucket = bucket_of.get(scope)
            if bucket is None:
                if len(bucket_of) >= _REMEMBERED_SCOPES:
                    bucket_of.clear()
                bucket = bucket_of[scope] = buckets[hash_scope(scope) // divisor % num_buckets]
                if len(bucket.scopes) < 2:
                    bucket.scopes.add(scope)
            bucket.add(row)
        for bucket in buckets:
            bucket.flush()
    finally:
        for bucket in buckets:
            bucket.close()
    return buckets


def hash_scope(scope: str | int) -> int:
    """The same number for the same scope in every process."""
    return zlib.crc32(str(scope).encode("utf-8", "surrogatepass"))


def split_into_whole_groups(
    rows: Iterable[ReducedRow], folder: Path, *, expected_bytes: int, chunk_bytes: int, divisor: int = 1
) -> Iterator[list[Bucket]]:
    """Spill rows and yield buckets to be read together: about `chunk_bytes` each, every scope within one of them.

    A scope is never split, so one that is larger than `chunk_bytes` makes a chunk of its own size.
    """
    num_buckets = max(2, min(MAX_BUCKETS, -(-expected_bytes // chunk_bytes)))
    together: list[Bucket] = []
    size = 0
    for bucket in sort_into_buckets(rows, folder, num_buckets=num_buckets, divisor=divisor):
        next_divisor = divisor * num_buckets
        if bucket.size > 2 * chunk_bytes and len(bucket.scopes) > 1 and next_divisor < _NUM_HASHES:
            inner = folder / f"{bucket.path.name}-split"
            yield from split_into_whole_groups(
                bucket.rows(), inner, expected_bytes=bucket.size, chunk_bytes=chunk_bytes, divisor=next_divisor
            )
            bucket.remove()
            continue
        if together and size + bucket.size > chunk_bytes:
            yield together
            together, size = [], 0
        if bucket.size:
            together.append(bucket)
            size += bucket.size
    if together:
        yield together
