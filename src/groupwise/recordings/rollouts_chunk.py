"""A chunk of a rollouts file: whole groups, as the columns of a step table."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from groupwise.core.column_checks import Column
from groupwise.core.errors import FileError, RecordError
from groupwise.core.step_fields.table import COLUMNS
from groupwise.core.step_table import OWN_FIELDS, StepTable
from groupwise.recordings.row import Id

_ROWS_IN_MESSAGE = re.compile(r"\brow(s?) (\d+)(?: and (\d+))?")


@dataclass(frozen=True, eq=False, kw_only=True)
class RolloutsChunk:
    """Rows that hold every step of each of their groups.

    Worked example: a file of two tasks with two rows each gives one chunk with
    `columns == {"task": ["t1", "t1", "t2", "t2"], "attempt": [0, 1, 0, 1], ...}` and `lines == [2, 3, 4, 5]`.
    """

    path: str
    """The file, for messages."""
    unit: str
    """What `lines` counts: lines of a JSON Lines file, rows of a Parquet file."""
    columns: dict[str, list[Any]]
    """As `StepTable.from_columns` takes them. `task` holds the scope of comparison: the group where given."""
    tasks: list[Id]
    """Id of each row's task, also where a group took its place in `columns`."""
    lines: list[int]
    """Line of each row in the file, from 1."""
    tokens: list[dict[str, Any]] = field(default_factory=list)
    """What was recorded of each row's tokens, where that was asked for; else empty."""

    def __len__(self) -> int:
        return len(self.lines)

    def table(self) -> StepTable:
        """The chunk as a step table; what is wrong with a row is told with its line."""
        try:
            return StepTable.from_columns(**{name: _pack_floats(name, column) for name, column in self.columns.items()})
        except RecordError as error:
            line = None if error.row is None else self.lines[error.row]
            raise FileError(f"{self.path}: {self._name_lines(str(error), error.row)}", row=line) from error

    def _name_lines(self, message: str, row: int | None) -> str:
        """Say lines where the table said rows: the reader has the file, not the chunk."""
        if row is None:
            return message

        def lines(match: re.Match[str]) -> str:
            first = f"{self.unit}{match[1]} {self.lines[int(match[2])]}"
            return first if match[3] is None else f"{first} and {self.lines[int(match[3])]}"

        return _ROWS_IN_MESSAGE.sub(lines, message, count=1)


def _pack_floats(name: str, column: list[Any]) -> Column:
    """A further column of nothing but floats as the array that a stateful part gives in training."""
    if name in COLUMNS or name in OWN_FIELDS or not all(type(value) is float for value in column):
        return column
    return np.array(column, dtype=np.float64)
