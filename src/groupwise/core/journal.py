"""The journal of a run: every update with its metrics, its trajectories and their credit, in one SQLite file.

An update is written in one transaction, so that a run that is killed at any instant loses at most the update in flight.
Readers (reports, replay, resume) see whole updates only.
"""

from __future__ import annotations

import json
import sqlite3
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

from groupwise.core.errors import FileError
from groupwise.core.records import SCHEMA, Trajectory
from groupwise.core.rollouts.trajectory_rows import trajectory_rows

TABLES = """
CREATE TABLE IF NOT EXISTS about (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS updates (number INTEGER PRIMARY KEY, version INTEGER NOT NULL) STRICT;
CREATE TABLE IF NOT EXISTS metrics (
    number INTEGER NOT NULL, name TEXT NOT NULL, value REAL, PRIMARY KEY (number, name)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS trajectories (
    number INTEGER NOT NULL, task TEXT NOT NULL, attempt INTEGER NOT NULL, stop TEXT NOT NULL, outcome REAL NOT NULL,
    success REAL, origin TEXT NOT NULL, error TEXT, steps BLOB NOT NULL, credit BLOB NOT NULL,
    PRIMARY KEY (number, task, attempt)
) WITHOUT ROWID;
"""


@dataclass(frozen=True, kw_only=True)
class Update:
    """One turn of the loop, as the journal keeps it."""

    number: int
    """Which update, from 1; 0 is the evaluation before the first."""
    version: int
    """Version of the weights that it produced."""
    metrics: Mapping[str, float]
    """Its metrics, by name."""
    trajectories: Sequence[Trajectory] = ()
    """What was sampled for it."""
    credit: Sequence[Sequence[float]] = field(default_factory=list)
    """Credit of each trajectory's steps, in the order of the trajectories."""


class Journal:
    """Writes and reads a run's journal."""

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            self._database = sqlite3.connect(path, isolation_level=None)
            self._database.execute("PRAGMA journal_mode = WAL")
            self._database.executescript(TABLES)
            self._database.execute("INSERT OR IGNORE INTO about VALUES ('schema', ?)", (str(SCHEMA),))
            found = self._database.execute("SELECT value FROM about WHERE key = 'schema'").fetchone()[0]
        except sqlite3.DatabaseError as error:
            raise FileError(f"{path}: not a journal: {error}; give the folder of a run") from None
        if found != str(SCHEMA):
            raise FileError(
                f"{path}: the journal has schema {found}, this version reads {SCHEMA}; use the version that wrote it"
            )

    def __enter__(self) -> Journal:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the file."""
        self._database.close()

    def write(self, update: Update) -> None:
        """Write an update whole, or not at all."""
        assert len(update.credit) == len(update.trajectories), "every trajectory has its credit"
        with self._database:
            self._database.execute("BEGIN IMMEDIATE")
            self._database.execute("INSERT INTO updates VALUES (?, ?)", (update.number, update.version))
            self._database.executemany(
                "INSERT INTO metrics VALUES (?, ?, ?)",
                [(update.number, name, value) for name, value in sorted(update.metrics.items())],
            )
            self._database.executemany(
                "INSERT INTO trajectories VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                [
                    _trajectory_values(update.number, trajectory, credit)
                    for trajectory, credit in zip(update.trajectories, update.credit, strict=True)
                ],
            )

    def forget_after(self, number: int) -> None:
        """Drop the updates after one: those that a resumed run will make again."""
        with self._database:
            self._database.execute("BEGIN IMMEDIATE")
            for table in ("updates", "metrics", "trajectories"):
                self._database.execute(f"DELETE FROM {table} WHERE number > ?", (number,))

    def last(self) -> int:
        """Number of the last update; -1 where there is none."""
        found = self._database.execute("SELECT MAX(number) FROM updates").fetchone()[0]
        return -1 if found is None else int(found)

    def curve(self, name: str) -> list[tuple[int, float]]:
        """A metric over the updates."""
        rows = self._database.execute("SELECT number, value FROM metrics WHERE name = ? ORDER BY number", (name,))
        return [(int(number), float(value)) for number, value in rows if value is not None]

    def metric_names(self) -> list[str]:
        """Every metric that some update has."""
        return [str(name) for (name,) in self._database.execute("SELECT DISTINCT name FROM metrics ORDER BY name")]

    def trajectories(self, number: int) -> Iterator[dict[str, Any]]:
        """What was sampled for an update: ids, outcome, the rows of its steps and their credit."""
        cursor = self._database.execute("SELECT * FROM trajectories WHERE number = ? ORDER BY task, attempt", (number,))
        names = [column[0] for column in cursor.description]
        for row in cursor:
            found = dict(zip(names, row, strict=True))
            found["steps"], found["credit"] = _unpack(found["steps"]), _unpack(found["credit"])
            yield found


def _trajectory_values(number: int, trajectory: Trajectory, credit: Sequence[float]) -> tuple[Any, ...]:
    total = sum(step.reward for step in trajectory.steps)
    return (
        number,
        trajectory.task.id,
        trajectory.attempt,
        trajectory.stop.value,
        total if trajectory.outcome is None else trajectory.outcome,
        trajectory.scores.get("success"),
        trajectory.origin.value,
        trajectory.error,
        _pack(list(trajectory_rows(trajectory))),
        _pack(list(credit)),
    )


def _pack(value: object) -> bytes:
    return zlib.compress(json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode(), 1)


def _unpack(blob: bytes) -> Any:
    return json.loads(zlib.decompress(blob))
