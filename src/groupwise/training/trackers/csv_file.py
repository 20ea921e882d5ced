"""A CSV file in the run's folder, for spreadsheets."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from groupwise.core.parts.part import Part


class Csv(Part, slot="tracker"):
    """A row an update, a column a metric; what was not measured is left empty."""

    file: str = "metrics.csv"
    """Name of the file in the run's folder."""

    @property
    def package(self) -> str:
        """Nothing is needed."""
        return ""

    def start(self, config: Mapping[str, Any], folder: Path, *, run_id: str | None) -> CsvFile:
        """Go on with the file, or begin one."""
        return CsvFile(folder / self.file, go_on=run_id is not None)


class CsvFile:
    """The file, whose columns grow as metrics appear."""

    def __init__(self, path: Path, *, go_on: bool) -> None:
        self._path = path
        self._rows: dict[int, dict[str, str]] = {}
        if go_on and path.exists():
            with path.open(newline="", encoding="utf-8") as file:
                self._rows = {int(row["update"]): row for row in csv.DictReader(file)}
        self._columns: dict[str, None] = dict.fromkeys(name for row in self._rows.values() for name in row)

    @property
    def run_id(self) -> str:
        """The file's name."""
        return self._path.name

    def log(self, number: int, metrics: Mapping[str, float]) -> None:
        """Add a row, or add to the last one."""
        row = self._rows.setdefault(number, {"update": str(number)})
        is_new = len(row) == 1
        row |= {name: repr(float(value)) for name, value in sorted(metrics.items())}
        if is_new and self._columns and row.keys() <= self._columns.keys():
            with self._path.open("a", newline="", encoding="utf-8") as file:
                csv.DictWriter(file, self._columns).writerow(row)
            return
        self._columns |= dict.fromkeys(row)
        draft = self._path.with_name(f".{self._path.name}.tmp")
        with draft.open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, self._columns)
            writer.writeheader()
            writer.writerows(self._rows.values())
        draft.replace(self._path)

    def finish(self) -> None:
        """Every row is on disk already."""
