"""Rollouts as JSON Lines: the header on the first line, then one object a step."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from groupwise.core.errors import FileError
from groupwise.recordings.header import NOT_OURS, find_header_fault, is_header
from groupwise.recordings.lines import JsonLines, Progress
from groupwise.recordings.row import Row


@dataclass(frozen=True)
class JsonlSource:
    """The rows of a groupwise JSON Lines file, as they stand there."""

    lines: JsonLines
    unit = "line"

    @property
    def is_compressed(self) -> bool:
        """Whether the file is smaller than its content."""
        return self.lines.is_compressed

    def meta(self) -> Mapping[str, Any]:
        """The notes in the header; a file without a proper header is an error."""
        header = self.lines.first()
        path = self.lines.path
        if header is None:
            raise FileError(f"{path}: the file holds only blank lines; check the run that wrote it")
        if not is_header(header):
            raise FileError(f"{path}, line 1: this is not the header of a groupwise rollouts file; {NOT_OURS}")
        fault = find_header_fault(header)
        if fault is not None:
            raise FileError(f"{path}, line 1: {fault}")
        meta: dict[str, Any] = header.get("meta", {})
        return meta

    def read_rows(self, progress: Progress | None, left_out: Counter[str]) -> Iterator[tuple[int, Row]]:
        """Every row after the header, with its line."""
        values = self.lines.values(progress)
        next(values)
        yield from values
