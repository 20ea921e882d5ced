"""The index of past rollouts by task, for replay.

The index is a table of the journal (`history`). It is written in the transaction of the update, so it always holds the
rollouts of the journal, also after a resume. Replayed rollouts are not written again.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter
from typing import Any

import numpy as np

from groupwise.data.past_rollouts import PastRollout, ReplayedRollout, digest_states
from groupwise.data.records import Origin, StopReason, Task, Trajectory, score_of
from groupwise.data.step_columns import read_step
from groupwise.store.journal_file import JournalDatabase, pack_blob, report_damage, unpack_blob
from groupwise.system.errors import FileError


@dataclass(frozen=True)
class PastRollouts:
    """Past rollouts by task, read from a journal."""

    _database: JournalDatabase

    def recent(self, task: str, *, max_rollouts: int, since: int = 0) -> list[PastRollout]:
        """The newest rollouts of a task, newest update first, sampled by policy version `since` or later.

        Rollouts that were sampled with a hint, but recorded without it, are left out.
        """
        rows = self._database.execute(
            # Version v samples for update v + 1 at the earliest: `number > since` lets SQLite use the index.
            "SELECT * FROM past_rollouts WHERE task = ? AND number > ? AND version >= ? AND origin != ? "
            "ORDER BY number DESC, rollout LIMIT ?",
            (task, since, since, Origin.HINTED.value, max_rollouts),
        )
        return self._pasts(rows)

    def newest(self, *, max_rollouts: int, after: int) -> list[PastRollout]:
        """The rollouts of all tasks after an update, newest update first, then ordered by task and number."""
        rows = self._database.execute(
            "SELECT * FROM past_rollouts WHERE number > ? AND origin != ? ORDER BY number DESC, task, rollout LIMIT ?",
            (after, Origin.HINTED.value, max_rollouts),
        )
        return self._pasts(rows)

    def find(self, task: str, *, number: int, rollout: int) -> PastRollout:
        """One rollout of a task; an error if the index does not hold it."""
        return self._pasts([self._one("past_rollouts", "*", task, number, rollout)])[0]

    def mean_score(self, task: str, *, max_rollouts: int) -> float | None:
        """Mean score of the newest rollouts of a task that had no help; None = there are none."""
        mean = self._database.execute(
            "SELECT AVG(score) FROM (SELECT score FROM past_rollouts WHERE task = ? AND origin = ? ORDER BY number "
            "DESC, rollout LIMIT ?)",
            (task, Origin.FRESH.value, max_rollouts),
        ).fetchone()[0]
        return None if mean is None else float(mean)

    def read(self, past: PastRollout) -> Trajectory:
        """A whole rollout as it was sampled: tokens, log-probs, entropies, and its own rewards."""
        columns = "stop, success, outcome, origin, steps"
        stop, success, outcome, origin, blob = self._one("trajectories", columns, past.task, past.number, past.rollout)
        with report_damage(self._database.path):
            rows = unpack_blob(blob)
            versions = {version for row in rows for version, _ in _spans(row)}
            scores = {"return": float(outcome)} | ({} if success is None else {"success": float(success)})
            if rows and "accuracy" in rows[0]:
                scores["accuracy"] = float(rows[0]["accuracy"])
            return Trajectory(
                id=f"{past.number}/{past.task}/{past.rollout}",
                task=Task(id=past.task),
                rollout=past.rollout,
                # The version per step is only needed if several versions sampled the rollout.
                steps=tuple(read_step(row, _spans(row) if len(versions) > 1 else ()) for row in rows),
                scores=scores,
                stop=StopReason(stop),
                versions=tuple(sorted({past.version, *versions})),
                origin=Origin(origin),
            )

    def credit_of(self, past: PastRollout) -> tuple[float, ...]:
        """The advantages that a rollout's steps had in their own update."""
        blob = self._one("trajectories", "credit", past.task, past.number, past.rollout)[0]
        with report_damage(self._database.path):
            return tuple(unpack_blob(blob))

    def list_replayed(self, number: int) -> list[dict[str, Any]]:
        """The replayed rollouts of an update: the group they joined, their source, the reason, and their advantages."""
        cursor = self._database.execute("SELECT * FROM replayed WHERE number = ? ORDER BY task, rollout", (number,))
        names = [column[0] for column in cursor.description]
        rows = [dict(zip(names, row, strict=True)) for row in cursor]
        with report_damage(self._database.path):
            return [
                row | {"credit": unpack_blob(row["credit"]), "keeps_credit": bool(row["keeps_credit"])} for row in rows
            ]

    def check(self, tasks: Collection[str], *, last: int | None = None) -> None:
        """Raise a FileError if the index and the journal differ, or if the index has a task that is not in `tasks`.

        With `last`, only the updates up to it are checked.
        """
        until = {"last": last}
        query = "SELECT number, task, rollout FROM {} WHERE number <= coalesce(:last, number)"
        sides = query.format("trajectories"), query.format("past_rollouts")
        for side, other in (sides, sides[::-1]):
            if only_here := self._database.execute(f"{side} EXCEPT {other} LIMIT 1", until).fetchone():
                raise self._make_mismatch_error(*only_here)
        fresh = self._database.execute(
            "SELECT DISTINCT task FROM past_rollouts WHERE number <= coalesce(:last, number) AND origin = :fresh",
            until | {"fresh": Origin.FRESH.value},
        )
        for (task,) in fresh:
            if task not in tasks:
                raise FileError(
                    f"{self._database.path}: it has rollouts of task {task!r}, which is not in the environment's train "
                    "set. Use an environment that gives the same task ids in every run, or start a new run"
                )

    def _pasts(self, rows: Iterable[Sequence[Any]]) -> list[PastRollout]:
        with report_damage(self._database.path):
            return [_past(row) for row in rows]

    def _one(self, table: str, columns: str, task: str, number: int, rollout: int) -> tuple[Any, ...]:
        """Columns of one rollout's row; an error if there is no such row."""
        where = "task = ? AND number = ? AND rollout = ?"
        row: tuple[Any, ...] | None = self._database.execute(
            f"SELECT {columns} FROM {table} WHERE {where}", (task, number, rollout)
        ).fetchone()
        if row is None:
            raise self._make_mismatch_error(number, task, rollout)
        return row

    def _make_mismatch_error(self, number: int, task: str, rollout: int) -> FileError:
        return FileError(
            f"{self._database.path}: the index of past rollouts and the journal differ: only one of them has rollout "
            f"{rollout} of task {task!r} in update {number}. The file was changed, or another version wrote it; start "
            "a new run, or resume without replay"
        )


def write_past_rollouts(
    database: sqlite3.Connection, number: int, trajectories: Sequence[Trajectory], credit: Sequence[Sequence[float]]
) -> None:
    """Write the index entries of an update's rollouts, within the caller's transaction."""
    rows = []
    for trajectory, values in zip(trajectories, credit, strict=True):
        where = (trajectory.task.id, number, trajectory.rollout)
        version, origin = min(trajectory.versions, default=number - 1), trajectory.origin.value
        scores = (score_of(trajectory), max(map(abs, values), default=0.0))
        rewards = np.fromiter(map(attrgetter("reward"), trajectory.steps), dtype=np.float64)
        rows.append((*where, version, origin, *scores, digest_states(trajectory).tobytes(), rewards.tobytes()))
    database.executemany("INSERT INTO past_rollouts VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", rows)


def write_replayed(database: sqlite3.Connection, number: int, replayed: Sequence[ReplayedRollout]) -> None:
    """Write the replayed rollouts of an update, within the caller's transaction."""
    rows = []
    for rollout in replayed:
        assert rollout.trajectory is not None, "a replayed rollout was read"
        origin = (rollout.past.task, rollout.past.number, rollout.past.rollout)
        how = (rollout.why, rollout.log_ratio, rollout.keeps_credit, pack_blob(list(rollout.credit)))
        rows.append((number, rollout.task, rollout.trajectory.rollout, *origin, *how))
    database.executemany("INSERT INTO replayed VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", rows)


def _past(row: Sequence[Any]) -> PastRollout:
    task, number, rollout, version, origin, score, credit, states, rewards = row
    return PastRollout(
        task=str(task),
        number=int(number),
        rollout=int(rollout),
        version=int(version),
        origin=str(origin),
        score=float(score),
        credit=float(credit),
        states=np.frombuffer(states, dtype=np.int64),
        rewards=np.frombuffer(rewards, dtype=np.float64),
    )


def _spans(row: dict[str, Any]) -> tuple[tuple[int, int], ...]:
    """The policy versions that sampled a step's tokens, each with its number of tokens."""
    if "versions" in row:
        return tuple((int(version), len(list(tokens))) for version, tokens in groupby(row["versions"]))
    return ((int(row["version"]), len(row.get("response_ids", ()))),) if "version" in row else ()
