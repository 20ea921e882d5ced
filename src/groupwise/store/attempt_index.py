"""The index of past attempts: found by task in well under a millisecond, and read back whole.

The index is a table of the journal (`history`), written with the attempts in one transaction: it goes back with the
journal when a run is resumed, and never holds an attempt that the journal does not. Replayed attempts are not written
again.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Iterable, Sequence
from itertools import groupby
from typing import Any

import numpy as np

from groupwise.data.past_attempts import PastAttempt, RecalledAttempt, digest_states
from groupwise.data.records import Origin, StopReason, Task, Trajectory, score_of
from groupwise.data.step_columns import read_step
from groupwise.store.journal_file import JournalDatabase, pack_blob, report_damage, unpack_blob
from groupwise.system.errors import FileError


class PastAttempts:
    """Past attempts by task, over the database of a journal."""

    def __init__(self, database: JournalDatabase) -> None:
        self._database, self._name = database, str(database.path)

    def recent(self, task: str, *, max_attempts: int, since: int = 0) -> list[PastAttempt]:
        """The newest attempts at a task, newest update first, sampled by the weights of version `since` or later.

        Those that were sampled with guidance but are told without it are left out.
        """
        rows = self._database.execute(
            # Weights of version v sample for update v + 1 at the earliest, so that the index bounds the search.
            "SELECT * FROM history WHERE task = ? AND number > ? AND version >= ? AND origin != ? "
            "ORDER BY number DESC, attempt LIMIT ?",
            (task, since, since, Origin.GUIDED.value, max_attempts),
        )
        return self._pasts(rows)

    def newest(self, *, max_attempts: int, after: int) -> list[PastAttempt]:
        """The attempts at any task in the updates after one, newest first; of equal updates, by task and attempt."""
        rows = self._database.execute(
            "SELECT * FROM history WHERE number > ? AND origin != ? ORDER BY number DESC, task, attempt LIMIT ?",
            (after, Origin.GUIDED.value, max_attempts),
        )
        return self._pasts(rows)

    def find(self, task: str, *, number: int, attempt: int) -> PastAttempt:
        """One attempt at a task; an error where the index does not hold it."""
        return self._pasts([self._one("history", "*", task, number, attempt)])[0]

    def mean_score(self, task: str, *, max_attempts: int) -> float | None:
        """Mean score of the newest attempts at a task that had no help; None where there are none."""
        mean = self._database.execute(
            "SELECT AVG(score) FROM (SELECT score FROM history WHERE task = ? AND origin = ? ORDER BY number DESC, "
            "attempt LIMIT ?)",
            (task, Origin.FRESH.value, max_attempts),
        ).fetchone()[0]
        return None if mean is None else float(mean)

    def read(self, past: PastAttempt) -> Trajectory:
        """An attempt as it was sampled, whole: tokens, log-probs, entropies, and the rewards it had by itself."""
        columns = "stop, success, outcome, origin, steps"
        stop, success, outcome, origin, blob = self._one("trajectories", columns, past.task, past.number, past.attempt)
        with report_damage(self._database.path):
            rows = unpack_blob(blob)
            versions = {version for row in rows for version, _ in _spans(row)}
            scores = {"return": float(outcome)} | ({} if success is None else {"success": float(success)})
            if rows and "accuracy" in rows[0]:
                scores["accuracy"] = float(rows[0]["accuracy"])
            return Trajectory(
                id=f"{past.number}/{past.task}/{past.attempt}",
                task=Task(id=past.task),
                attempt=past.attempt,
                # Which weights sampled each step matters where several sampled the attempt.
                steps=tuple(read_step(row, _spans(row) if len(versions) > 1 else ()) for row in rows),
                scores=scores,
                stop=StopReason(stop),
                versions=tuple(sorted({past.version, *versions})),
                origin=Origin(origin),
            )

    def credit_of(self, past: PastAttempt) -> tuple[float, ...]:
        """The credit that an attempt's steps had in their own update."""
        blob = self._one("trajectories", "credit", past.task, past.number, past.attempt)[0]
        with report_damage(self._database.path):
            return tuple(unpack_blob(blob))

    def list_recalled(self, number: int) -> list[dict[str, Any]]:
        """What an update recalled: into which task's group, from which attempt of which update, why, and its credit."""
        cursor = self._database.execute("SELECT * FROM recalled WHERE number = ? ORDER BY task, attempt", (number,))
        names = [column[0] for column in cursor.description]
        rows = [dict(zip(names, row, strict=True)) for row in cursor]
        with report_damage(self._database.path):
            return [
                row | {"credit": unpack_blob(row["credit"]), "keeps_credit": bool(row["keeps_credit"])} for row in rows
            ]

    def check(self, tasks: Collection[str], *, last: int | None = None) -> None:
        """Refuse an index that does not hold exactly the attempts of the journal, or holds tasks that are no more.

        With `last`, only what the updates up to it have left is looked at.
        """
        until = {"last": last}
        query = "SELECT number, task, attempt FROM {} WHERE number <= coalesce(:last, number)"
        sides = query.format("trajectories"), query.format("history")
        apart, beyond = (
            self._database.execute(f"{side} EXCEPT {other} LIMIT 1", until).fetchone()
            for side, other in (sides, sides[::-1])
        )
        for attempt in (apart, beyond):
            if attempt:
                raise FileError(self._disagrees(f"attempt {attempt[2]} at {attempt[1]!r} in update {attempt[0]}"))
        fresh = self._database.execute(
            "SELECT DISTINCT task FROM history WHERE number <= coalesce(:last, number) AND origin = :fresh",
            until | {"fresh": Origin.FRESH.value},
        )
        for (task,) in fresh:
            if task not in tasks:
                raise FileError(
                    f"{self._name}: it remembers attempts at {task!r}, which is not among the environment's training "
                    "tasks; give the environment as it was, with ids that are the same in every run, or start a new run"
                )

    def _pasts(self, rows: Iterable[Sequence[Any]]) -> list[PastAttempt]:
        with report_damage(self._database.path):
            return [_past(row) for row in rows]

    def _one(self, table: str, columns: str, task: str, number: int, attempt: int) -> tuple[Any, ...]:
        """Columns of one attempt's row; an error where the table does not hold it."""
        where = "task = ? AND number = ? AND attempt = ?"
        row: tuple[Any, ...] | None = self._database.execute(
            f"SELECT {columns} FROM {table} WHERE {where}", (task, number, attempt)
        ).fetchone()
        if row is None:
            raise FileError(self._disagrees(f"attempt {attempt} at {task!r} in update {number}"))
        return row

    def _disagrees(self, what: str) -> str:
        return (
            f"{self._name}: the index of past attempts and the journal disagree on {what}: one holds it, the "
            "other does not. The file was changed, or another version wrote it; start a new run, or go on without "
            "replay"
        )


def write_past_attempts(
    database: sqlite3.Connection, number: int, trajectories: Sequence[Trajectory], credit: Sequence[Sequence[float]]
) -> None:
    """Write the index entries of an update's attempts, within the caller's transaction."""
    database.executemany(
        "INSERT INTO history VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
        [
            (
                trajectory.task.id,
                number,
                trajectory.attempt,
                min(trajectory.versions, default=number - 1),
                trajectory.origin.value,
                score_of(trajectory),
                max(map(abs, values), default=0.0),
                digest_states(trajectory).tobytes(),
                np.array([step.reward for step in trajectory.steps], dtype=np.float64).tobytes(),
            )
            for trajectory, values in zip(trajectories, credit, strict=True)
        ],
    )


def write_recalled(database: sqlite3.Connection, number: int, recalled: Sequence[RecalledAttempt]) -> None:
    """Write what an update recalled, within the caller's transaction."""
    rows = []
    for attempt in recalled:
        assert attempt.trajectory is not None, "only what was read can have taken part"
        origin = (attempt.past.task, attempt.past.number, attempt.past.attempt)
        how = (attempt.why, attempt.log_ratio, attempt.keeps_credit, pack_blob(list(attempt.credit)))
        rows.append((number, attempt.task, attempt.trajectory.attempt, *origin, *how))
    database.executemany("INSERT INTO recalled VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", rows)


def _past(row: Sequence[Any]) -> PastAttempt:
    task, number, attempt, version, origin, score, credit, states, rewards = row
    return PastAttempt(
        task=str(task),
        number=int(number),
        attempt=int(attempt),
        version=int(version),
        origin=str(origin),
        score=float(score),
        credit=float(credit),
        states=np.frombuffer(states, dtype=np.int64),
        rewards=np.frombuffer(rewards, dtype=np.float64),
    )


def _spans(row: dict[str, Any]) -> tuple[tuple[int, int], ...]:
    """Which version of the weights sampled which tokens of a step."""
    if "versions" in row:
        return tuple((int(version), len(list(tokens))) for version, tokens in groupby(row["versions"]))
    return ((int(row["version"]), len(row.get("response_ids", ()))),) if "version" in row else ()
