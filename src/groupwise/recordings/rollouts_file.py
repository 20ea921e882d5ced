"""A rollouts file to read: row by row, or in chunks that hold whole groups."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Protocol

from groupwise.core.errors import FileError, RecordError
from groupwise.recordings.jsonl import JsonlSource
from groupwise.recordings.lines import PARQUET_MAGIC, JsonLines, Progress, read_first_bytes
from groupwise.recordings.parquet import ParquetSource
from groupwise.recordings.reduced_rows import ColumnNames, ReducedRow, RolloutsBuilder, reduce_row
from groupwise.recordings.rollouts_chunk import RolloutsChunk
from groupwise.recordings.row import Row, find_row_fault
from groupwise.recordings.spill import split_into_whole_groups
from groupwise.recordings.uniformity import Uniformity

CHUNK_BYTES = 32 << 20
COMPRESSION = 16
"""How many times smaller than its content a compressed file may be; a guess too low only costs another split."""


class Source(Protocol):
    """Where the rows of a file come from: one per format."""

    @property
    def unit(self) -> str:
        """What rows are numbered by: "line" or "row"."""

    @property
    def is_compressed(self) -> bool:
        """Whether the file is smaller than its content."""

    def meta(self) -> Mapping[str, Any]:
        """Notes about the whole file."""

    def read_rows(self, progress: Progress | None, left_out: Counter[str]) -> Iterator[tuple[int, Row]]:
        """Every row with its line, not yet checked; what the format records but no row can hold is counted."""


@dataclass(frozen=True, eq=False)
class RolloutsFile:
    """A rollouts file, opened: its format is known and its header was read, its rows were not.

    Worked example: `for chunk in RolloutsFile.open("rollouts.jsonl").chunks(): algorithm.advantage(chunk.table())` goes
    through a file of any size and holds one chunk at a time.
    """

    path: Path
    """The file."""
    meta: Mapping[str, Any]
    """Notes that the writer left in the header."""
    size: int
    """Bytes of the file."""
    source: Source
    """The format's reader."""
    left_out: Counter[str] = field(default_factory=Counter)
    """What the last pass found in a foreign format but could not make a row of, counted by reason."""

    @classmethod
    def open(cls, path: str | Path) -> RolloutsFile:
        """Open a groupwise rollouts file; JSON Lines (plain or gzip) and Parquet are told apart by their content."""
        path = Path(path)
        if read_first_bytes(path) == PARQUET_MAGIC:
            return cls.of(path, ParquetSource(path))
        return cls.of(path, JsonlSource(JsonLines.open(path)))

    @classmethod
    def of(cls, path: Path, source: Source) -> RolloutsFile:
        """A file that `source` reads."""
        return cls(path=path, meta=source.meta(), size=path.stat().st_size, source=source)

    def rows(self, progress: Progress | None = None) -> Iterator[Row]:
        """Stream the rows, each checked.

        Args:
            progress: called now and then with the bytes of the file that are done.
        """
        return (row for _, row in self._check_rows(progress, looks_inside=True))

    def chunks(
        self,
        progress: Progress | None = None,
        chunk_bytes: int = CHUNK_BYTES,
        *,
        watch: Callable[[Row], None] | None = None,
        keeps_tokens: bool = False,
    ) -> Iterator[RolloutsChunk]:
        """Stream the file in chunks that hold whole groups, whatever the order of its rows.

        A file of up to twice `chunk_bytes` is one chunk. A larger one is first sorted into temporary files, reduced to
        what credit reads, and then read chunk by chunk; the temporary files are removed at the end, also on an error.

        Args:
            progress: called now and then with the bytes of the file that are done.
            chunk_bytes: about how much of the reduced rows to hold at a time.
            watch: shown each row, checked and whole, in the order of the file, before it is reduced.
            keeps_tokens: whether chunks hold what was recorded of tokens, for credit inside a step.
        """
        expected = self.size * (COMPRESSION if self.source.is_compressed else 1)
        names = ColumnNames()
        rows = self._reduce_rows(progress, names, watch, keeps_tokens=keeps_tokens)
        if expected <= 2 * chunk_bytes:
            yield self._build_chunk(rows, names)
            return
        with TemporaryDirectory(prefix="groupwise-rollouts-") as folder:
            # Every row passes through the first split before the first chunk comes out, so the names are complete.
            for buckets in split_into_whole_groups(
                rows, Path(folder), expected_bytes=expected, chunk_bytes=chunk_bytes
            ):
                yield self._build_chunk((row for bucket in buckets for row in bucket.rows()), names)
                for bucket in buckets:
                    bucket.remove()

    def _build_chunk(self, rows: Iterator[ReducedRow], names: ColumnNames) -> RolloutsChunk:
        builder = RolloutsBuilder()
        for row in rows:
            builder.add(row)
        return builder.build(str(self.path), self.source.unit, names.columns())

    def _reduce_rows(
        self,
        progress: Progress | None,
        names: ColumnNames,
        watch: Callable[[Row], None] | None,
        *,
        keeps_tokens: bool,
    ) -> Iterator[ReducedRow]:
        for number, row in self._check_rows(progress, looks_inside=keeps_tokens):
            if watch is not None:
                watch(row)
            try:
                reduced = reduce_row(number, row, keeps_tokens=keeps_tokens)
                names.add(reduced.columns)
            except RecordError as error:
                raise FileError(f"{self.path}, {self.source.unit} {number}: {error}", row=number) from None
            yield reduced

    def _check_rows(self, progress: Progress | None, *, looks_inside: bool) -> Iterator[tuple[int, Row]]:
        self.left_out.clear()
        uniformity = Uniformity(self.source.unit)
        number = 0
        for number, row in self.source.read_rows(progress, self.left_out):
            fault = find_row_fault(row, looks_inside=looks_inside) or uniformity.find_fault(number, row)
            if fault is not None:
                raise FileError(f"{self.path}, {self.source.unit} {number}: {fault}", row=number)
            yield number, row
        if not number:
            reasons = ", ".join(f"{count} {reason}" for reason, count in self.left_out.items())
            raise FileError(
                f"{self.path}: the file holds no rows{f' (left out: {reasons})' if reasons else ''}; "
                "record at least one step"
            )
