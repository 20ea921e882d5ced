"""The journal of a run as recorded rollouts: its attempts, grouped as they were compared."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from groupwise.core.errors import FileError
from groupwise.core.journal.journal import Journal
from groupwise.core.remembered import Remembered, number_at
from groupwise.recordings.lines import Progress
from groupwise.recordings.row import Row, quote_json


class JournalSource:
    """Reads the attempts of a run's updates; the attempts at a task in one update are a group."""

    unit = "step"
    is_compressed = True

    def __init__(self, path: Path) -> None:
        self._path = path

    def meta(self) -> Mapping[str, Any]:
        """A journal has no notes; its run's folder has the settings."""
        return {}

    def read_rows(self, progress: Progress | None, left_out: Counter[str]) -> Iterator[tuple[int, Row]]:
        """Every step of every update, numbered from 1."""
        number, size = 0, self._path.stat().st_size
        with Journal(self._path, read_only=True) as journal:
            updates = journal.update_numbers()
            for done, update in enumerate(updates, start=1):
                remembered = _read_task_columns(journal, update)
                for trajectory in journal.trajectories(update):
                    if not trajectory["steps"]:
                        left_out["attempts without a step"] += 1
                    rows: list[Row] = trajectory["steps"]
                    if not isinstance(rows, list) or not all(_has_place(row) for row in rows):
                        raise FileError(
                            f"{self._path}: the steps of an attempt in update {update} are {quote_json(rows)}; the "
                            "journal is damaged: take a copy of the run from elsewhere"
                        )
                    for row in rows:
                        number += 1
                        if row["task"] in remembered:
                            row["extra"] = {**row.get("extra", {}), **_take_numbers(remembered, row)}
                        row["group"] = f"{row['task']}@{update}"
                        yield number, row
                if progress is not None:
                    progress(size * done // len(updates))


def _has_place(row: object) -> bool:
    return isinstance(row, dict) and "task" in row and type(row.get("index")) is int


def _take_numbers(remembered: Mapping[Any, Mapping[str, Remembered]], row: Row) -> dict[str, float]:
    """What was remembered for a step, by the name of the column."""
    return {name: number_at(known, row["index"]) for name, known in remembered[row["task"]].items()}


def _read_task_columns(journal: Journal, update: int) -> dict[Any, dict[str, Remembered]]:
    """What parts remembered of each task when an update began, by the name of the column."""
    by_name: dict[Any, dict[str, Remembered]] = {}
    for state in journal.states_before(update):
        for name, by_task in state.columns.items():
            for task, value in by_task.items():
                by_name.setdefault(task, {})[name] = value
    return by_name
