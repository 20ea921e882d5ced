"""A Parquet file of whoever wrote it, read a few rows at a time: a column that would unfold without end is refused."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from groupwise.core.errors import FileError
from groupwise.core.text.safe_text import quote_line
from groupwise.recordings.lines import Progress
from groupwise.recordings.row import quote_key

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
            self._check_entries(file.metadata)
            batches = file.iter_batches(batch_size=_BATCH_ROWS, columns=self.columns)
        while True:
            with self._report_damage():
                batch = next(batches, None)
                if batch is None:
                    return
                names, columns = list(batch.schema.names), [column.to_pylist() for column in batch.columns]
            yield names, columns

    def _check_entries(self, metadata: Any) -> None:
        """Refuse lists that no row of a rollouts file has, before they are unfolded."""
        for group in map(metadata.row_group, range(metadata.num_row_groups)):
            for column in map(group.column, range(group.num_columns)):
                if self._reads(column) and column.num_values > _MAX_ENTRIES * max(1, group.num_rows):
                    raise FileError(
                        f"{self.path}: column {quote_key(column.path_in_schema)} holds {column.num_values} entries in "
                        f"{group.num_rows} rows; a row holds one step: write the file again"
                    )

    def _reads(self, column: Any) -> bool:
        path: str = column.path_in_schema
        return self.columns is None or any(path == name or path.startswith(f"{name}.") for name in self.columns)

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
