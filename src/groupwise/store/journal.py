"""The journal of a run: every update with its metrics, trajectories and advantages, in one SQLite file.

Each update is one transaction. A run that is killed loses at most the current update, and readers see whole updates.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import astuple, dataclass, field
from operator import attrgetter
from pathlib import Path
from typing import Any

from groupwise.data.past_rollouts import Remembered, ReplayedRollout
from groupwise.data.records import SetAside, Trajectory
from groupwise.data.step_columns import make_rows
from groupwise.parts.stateful import StateBefore
from groupwise.store.journal_file import (
    BESIDE_UPDATES,
    LINKED_TABLES,
    START,
    DigestChain,
    check_digest_chain,
    check_schema,
    connect,
    connect_to_read,
    digest_update,
    find_damage,
    name_cells,
    pack_blob,
    report_damage,
    rewrite_up_to,
    unpack_blob,
)
from groupwise.store.rollout_index import PastRollouts, write_past_rollouts, write_replayed
from groupwise.system.errors import FileError

TASK_SET = "task_set "
"""Prefix of the keys of the task sets' hashes, in the table `about`."""
CLOCK = -1
"""The place of the times of rollouts that were sampled ahead. They differ between runs with the same seed, so they are
in no digest."""


@dataclass(frozen=True, kw_only=True)
class Update:
    """One update, as the journal stores it."""

    number: int
    """Number of the update, from 1; 0 is the evaluation before the first."""
    version: int
    """Policy version that it produced."""
    metrics: Mapping[str, float]
    trajectories: Sequence[Trajectory] = ()
    credit: Sequence[Sequence[float]] = field(default_factory=list)
    """Advantages of each trajectory's steps, in the order of the trajectories."""
    faults: Sequence[Trajectory] = ()
    """Rollouts that ended with an environment error. They are not used."""
    replayed: Sequence[ReplayedRollout] = ()
    set_aside: Sequence[SetAside] = ()
    """Rollouts that ended without an error and were not used."""
    request_words: Mapping[tuple[str, int], str] = field(default_factory=dict)
    """The plan's request for a rollout, in words, by task and number of the rollout; empty if its origin says it."""
    states: Sequence[StateBefore] = ()
    """States of stateful parts when the update began."""
    pending: Mapping[int, PendingRollouts] = field(default_factory=dict)
    """Rollouts that were sampled ahead during this update, by the update that will use them."""


@dataclass(frozen=True, kw_only=True)
class Alarm:
    """An alarm that was raised."""

    number: int
    """After which update."""
    name: str
    """Its name in the section [alarms] of a run file."""
    action: str
    """What the alarm does: warn, or stop the run."""
    sentence: str
    """What was observed, why it matters, and what to do next."""

    @property
    def line(self) -> str:
        verb = "stopped by" if self.action == "stop" else "alarm"
        return f"{verb} {self.name} after update {self.number}: {self.sentence}"


@dataclass(frozen=True, kw_only=True)
class SettingChange:
    """A setting that changed when the run was resumed."""

    number: int
    """After which update: the next one is the first with the new value."""
    path: str
    before: Any
    """The old value; None = not set."""
    after: Any
    """The new value; None = not set."""

    @property
    def line(self) -> str:
        return f"from update {self.number + 1} on: {self.path} was {self.before!r}, is {self.after!r}"


@dataclass(frozen=True, kw_only=True)
class EvaluatedRollout:
    """One rollout of an evaluation, as the journal stores it."""

    number: int
    """After which update; 0 = before the first."""
    name: str
    """Name of the task set; that of its split, unless the run file names task sets."""
    split: str
    """The split that the tasks are of."""
    seed: int
    """Number of the repetition of the evaluation."""
    task: str
    rollout: int
    task_set: str
    """Digest of the task set: evaluations with equal digests are comparable."""
    tags: str
    """The task's labels, such as its category, joined by commas."""
    stop: str
    success: float | None
    """1 = solved, 0 = not solved; None = the environment does not tell."""
    outcome: float
    steps: int
    tokens: int | None = None
    """Number of its sampled tokens; None = not counted."""
    score: float | None = None
    """The step info that the run file asks for, of the last step; 0 without it. None = not asked for, or an error."""


@dataclass(frozen=True, kw_only=True)
class PendingRollouts:
    """Rollouts that were sampled ahead for a later update, as blobs.

    They are written with the update during which they were sampled: a resumed run cannot sample them again, because the
    weights of that time are gone. They are kept for the newest update and for each update with a checkpoint. They are
    not in the chain of digests, since the update that learns from them writes them again; the checkpoint has a digest.
    """

    contents: Sequence[bytes]
    """Everything that is equal in two runs with the same seed."""
    clock: bytes
    """The times that the rollouts took."""


class Journal:
    """Writes and reads a run's journal. With `read_only` it reads the present content while the run continues."""

    def __init__(self, path: Path, *, read_only: bool = False) -> None:
        self._path = path
        try:
            self._database = connect_to_read(path) if read_only else connect(path)
        except sqlite3.DatabaseError as error:  # a damaged file is a FileError already
            raise FileError(
                f"{path}: the journal cannot be opened ({error}); check that you may read it and that the disk has "
                "space; to resume, you must be allowed to write it"
            ) from None
        if read_only:
            try:
                check_schema(self._database, path)
            except FileError:
                self._database.close()
                raise

    def __enter__(self) -> Journal:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        self._database.close()

    def check_open(self) -> None:
        self._database.check_open()

    @property
    def past_rollouts(self) -> PastRollouts:
        return PastRollouts(self._database)

    # Writing: each in one transaction.

    @contextmanager
    def _transaction(self, what: str) -> Iterator[None]:
        with self._report_write_failure(what), self._database:
            self._database.execute("BEGIN IMMEDIATE")
            yield

    @contextmanager
    def _report_write_failure(self, what: str) -> Iterator[None]:
        try:
            yield
        except (sqlite3.IntegrityError, sqlite3.ProgrammingError):  # a bug of ours, not a problem of the disk
            raise
        except (sqlite3.DatabaseError, OSError) as error:
            raise FileError(
                f"{self._path}: {what} could not be written ({error}); the journal is unchanged. Free some space, "
                "check that you may write into the folder, or end the other process that writes there. Then use "
                "--resume"
            ) from None

    def _insert(self, table: str, rows: Iterable[Sequence[Any]], *, how: str = "INSERT") -> None:
        """Write rows whose values are in the order of the table's columns."""
        listed = list(rows)
        if listed:
            self._database.executemany(f"{how} INTO {table} VALUES ({', '.join('?' * len(listed[0]))})", listed)

    def name_task_sets(self, hashes: Mapping[str, str]) -> None:
        """Write the hash of each task set; hashes that were written before stay."""
        with self._transaction("the task sets' hashes"):
            task_sets = ((f"{TASK_SET}{split}", digest) for split, digest in hashes.items())
            self._insert("about", task_sets, how="INSERT OR IGNORE")

    def write(self, update: Update, *, checkpoints: Collection[int] = ()) -> None:
        """Write an update whole, or not at all.

        Of the rollouts that were sampled ahead during earlier updates, only those of `checkpoints` are kept.
        """
        number = update.number
        with self._transaction(f"update {number}"):
            before = self._digest_before(number)
            self._insert("updates", [(number, update.version, None)])
            self._insert("metrics", [(number, name, value) for name, value in sorted(update.metrics.items())])
            self._insert(
                "trajectories",
                map(_trajectory_values, [number] * len(update.credit), update.trajectories, update.credit),
            )
            self._insert(
                "faults",
                [(number, t.task.id, t.rollout, t.stop.value, len(t.steps), t.error or "") for t in update.faults],
            )
            write_past_rollouts(self._database, number, update.trajectories, update.credit)
            if update.replayed:
                write_replayed(self._database, number, update.replayed)
            for rollout in update.set_aside:
                *about, origin, _, steps, _, _ = _trajectory_values(number, rollout.trajectory, ())
                self._insert("set_aside", [(*about, origin, rollout.by, steps)])
            asked_for = sorted(update.request_words.items())
            self._insert("asked_for", [(number, *rollout, words) for rollout, words in asked_for])
            self._insert(
                "part_states",
                [
                    (number, state.path, state.kind, pack_blob(state.state), pack_blob(state.columns))
                    for state in update.states
                ],
            )
            for following, pending in update.pending.items():
                contents = enumerate([pending.clock, *pending.contents], start=CLOCK)
                self._insert("pending", ((number, following, place, content) for place, content in contents))
            earlier = "SELECT DISTINCT number FROM pending WHERE number < ?"
            for (sampled_in,) in self._database.execute(earlier, (number,)).fetchall():
                if sampled_in not in checkpoints:
                    self._database.execute("DELETE FROM pending WHERE number = ?", (sampled_in,))
            digest = digest_update(self._database, number, before)
            self._database.execute("UPDATE updates SET digest = ? WHERE number = ?", (digest, number))

    def write_evaluation(self, rollouts: Sequence[EvaluatedRollout]) -> None:
        """Write all rollouts of an evaluation; they replace an evaluation of the same update and name."""
        with self._transaction("the evaluation"):
            self._database.executemany(
                "DELETE FROM evaluations WHERE number = ? AND name = ?",
                {(rollout.number, rollout.name) for rollout in rollouts},
            )
            self._insert("evaluations", map(astuple, rollouts))

    def write_alarms(self, alarms: Sequence[Alarm]) -> None:
        """Write alarms; an alarm of the same name and update is replaced."""
        with self._transaction("an alarm"):
            self._insert("alarms", map(astuple, alarms), how="INSERT OR REPLACE")

    def write_changes(self, number: int, changes: Sequence[SettingChange]) -> None:
        """Write which settings changed after an update, in place of an earlier list for it."""
        with self._transaction("the changed settings"):
            self._database.execute("DELETE FROM changes WHERE number = ?", (number,))
            self._insert(
                "changes",
                ((number, change.path, json.dumps(change.before), json.dumps(change.after)) for change in changes),
            )

    def forget_after(self, number: int) -> None:
        """Delete the updates after a number, which a resumed run makes again."""
        with self._transaction(f"the end of the journal after update {number}"):
            for table in (*LINKED_TABLES, *BESIDE_UPDATES, "pending"):
                self._database.execute(f"DELETE FROM {table} WHERE number > ?", (number,))

    # The chain of digests, and damage.

    def _digest_before(self, number: int) -> str:
        row = self._database.execute(
            "SELECT digest FROM updates WHERE number < ? ORDER BY number DESC LIMIT 1", (number,)
        ).fetchone()
        return START if row is None else str(row[0])

    def digest(self) -> str:
        """The digest of all updates, which a checkpoint stores."""
        return self._digest_before(self.last_number() + 1)

    def check_digest_chain(self, last: int | None = None) -> DigestChain:
        """Which of the updates 1 to `last` (None = all) are unchanged since they were written."""
        return check_digest_chain(self._database, last)

    def find_damage(self) -> str | None:
        return find_damage(self._database)

    def rewrite_up_to(self, number: int) -> None:
        """Replace a damaged file by a new one with the updates up to a number, which must be unchanged."""
        with self._report_write_failure(f"the updates up to {number}"):
            self._database = rewrite_up_to(self._database, number)

    # Reading.

    def _read(self, query: str, *values: Any) -> list[dict[str, Any]]:
        """Rows as dicts; a FileError if a cell has the wrong type."""
        cursor = self._database.execute(query, values)
        names = [column[0] for column in cursor.description]
        with report_damage(self._path):
            return [name_cells(names, row) for row in cursor]

    def task_sets(self) -> dict[str, str]:
        """The hash of each task set when the run began."""
        rows = self._database.execute("SELECT key, value FROM about WHERE key LIKE ? ORDER BY key", (f"{TASK_SET}%",))
        return {str(key).removeprefix(TASK_SET): str(value) for key, value in rows}

    def last_number(self) -> int:
        """Number of the last update; -1 = none yet."""
        number = self._database.execute("SELECT MAX(number) FROM updates").fetchone()[0]
        return -1 if number is None else int(number)

    def update_numbers(self) -> list[int]:
        return [int(number) for (number,) in self._database.execute("SELECT number FROM updates ORDER BY number")]

    def curve(self, name: str) -> list[tuple[int, float]]:
        rows = self._database.execute("SELECT number, value FROM metrics WHERE name = ? ORDER BY number", (name,))
        with report_damage(self._path):
            return [(int(number), float(value)) for number, value in rows if value is not None]

    def metrics(self, number: int) -> dict[str, float]:
        """The metrics of an update, by name; empty if there is no such update."""
        rows = self._database.execute("SELECT name, value FROM metrics WHERE number = ?", (number,))
        with report_damage(self._path):
            return {str(name): float(value) for name, value in rows if value is not None}

    def metric_names(self) -> list[str]:
        return [str(name) for (name,) in self._database.execute("SELECT DISTINCT name FROM metrics ORDER BY name")]

    def rollouts(self) -> list[dict[str, Any]]:
        """All rollouts of all updates without their steps: ids, how they ended, final score and success."""
        return self._read(
            "SELECT number, task, rollout, stop, outcome, success, origin, error FROM trajectories "
            "ORDER BY number, task, rollout"
        )

    def trajectories(self, number: int, *, task: str | None = None) -> Iterator[dict[str, Any]]:
        """The rollouts of an update, or of one of its tasks: ids, final score, rows of the steps, advantages."""
        cursor = self._database.execute(
            "SELECT * FROM trajectories WHERE number = ? AND task = COALESCE(?, task) ORDER BY task, rollout",
            (number, task),
        )
        names = [column[0] for column in cursor.description]
        for row in cursor:
            with report_damage(self._path):
                cells = name_cells(names, row)
                cells["steps"], cells["credit"] = unpack_blob(cells["steps"]), unpack_blob(cells["credit"])
            yield cells

    def faults(self, number: int) -> list[dict[str, Any]]:
        """The rollouts of an update that ended with an error: task, number, stop, number of steps, and the error."""
        return self._read("SELECT task, rollout, stop, steps, error FROM faults WHERE number = ?", number)

    def set_aside(self, number: int) -> list[dict[str, Any]]:
        """The rollouts of an update that were not used: ids, how they ended, which part dropped them, their steps."""
        rows = self._read("SELECT * FROM set_aside WHERE number = ? ORDER BY task, rollout", number)
        with report_damage(self._path):
            return [row | {"steps": unpack_blob(row["steps"])} for row in rows]

    def request_words(self, number: int) -> dict[tuple[str, int], str]:
        """The plan's requests for the rollouts of an update, in words, by task and number of the rollout."""
        rows = self._read("SELECT task, rollout, words FROM asked_for WHERE number = ?", number)
        return {(row["task"], row["rollout"]): row["words"] for row in rows}

    def evaluations(self, number: int | None = None) -> list[EvaluatedRollout]:
        """All rollouts of the evaluations after an update (None = all), ordered by update, name, seed and task."""
        rows = self._read("SELECT * FROM evaluations WHERE number = COALESCE(?, number)", number)
        evaluated = [EvaluatedRollout(**{"name": row["split"], **row}) for row in rows]  # older journals have no names
        return sorted(evaluated, key=attrgetter("number", "name", "seed", "task", "rollout"))

    def alarms(self) -> list[Alarm]:
        """All alarms, ordered by update and name."""
        return [Alarm(**row) for row in self._read("SELECT * FROM alarms ORDER BY number, name")]

    def changes(self) -> list[SettingChange]:
        """All settings that changed when the run was resumed, ordered by update and path."""
        rows = self._read("SELECT * FROM changes ORDER BY number, path")
        with report_damage(self._path):
            return [
                SettingChange(**{**row, "before": json.loads(row["before"]), "after": json.loads(row["after"])})
                for row in rows
            ]

    def states_before(self, number: int) -> list[StateBefore]:
        """The states of stateful parts when an update began, ordered by path."""
        rows = self._read("SELECT path, kind, state, columns FROM part_states WHERE number = ? ORDER BY path", number)
        with report_damage(self._path):
            return [
                StateBefore(
                    **{**row, "state": _unpack_object(row["state"]), "columns": _unpack_columns(row["columns"])}
                )
                for row in rows
            ]

    def read_pending(self, number: int) -> dict[int, PendingRollouts]:
        """The rollouts that were sampled ahead during an update, by the update that will use them."""
        contents: dict[int, list[bytes]] = {}
        for row in self._read(
            "SELECT following, content FROM pending WHERE number = ? ORDER BY following, place", number
        ):
            contents.setdefault(row["following"], []).append(row["content"])
        return {
            following: PendingRollouts(clock=clock, contents=rest) for following, (clock, *rest) in contents.items()
        }

    def list_pending(self, number: int) -> list[int]:
        """The later updates that have rollouts sampled ahead during an update."""
        query = "SELECT DISTINCT following FROM pending WHERE number = ? ORDER BY following"
        return [int(following) for (following,) in self._database.execute(query, (number,))]

    def digest_pending(self, number: int) -> str | None:
        """The digest of the rollouts that were sampled ahead during an update; None = there are none."""
        rows = self._database.execute(
            "SELECT following, place, content FROM pending WHERE number = ? AND place > ? ORDER BY following, place",
            (number, CLOCK),
        ).fetchall()
        digest = hashlib.sha256(b"groupwise pending")
        for following, place, content in rows:
            is_blob = isinstance(content, bytes)
            digest.update(f"\0{following} {place} {len(content) if is_blob else repr(content)}\0".encode())
            digest.update(content if is_blob else b"")
        return digest.hexdigest() if rows else None


def _trajectory_values(number: int, trajectory: Trajectory, credit: Sequence[float]) -> tuple[Any, ...]:
    total = sum(map(attrgetter("reward"), trajectory.steps))
    return (
        number,
        trajectory.task.id,
        trajectory.rollout,
        trajectory.stop.value,
        total if trajectory.outcome is None else trajectory.outcome,
        trajectory.scores.get("success"),
        trajectory.origin.value,
        trajectory.error,
        pack_blob(make_rows(trajectory)),
        pack_blob(list(credit)),
        trajectory.parent,
    )


def _unpack_object(blob: bytes) -> dict[str, Any]:
    value = unpack_blob(blob)
    if not isinstance(value, dict):
        raise TypeError(f"a part's state is a {type(value).__name__}")
    return value


def _unpack_columns(blob: bytes) -> dict[str, dict[str, Remembered]]:
    columns = _unpack_object(blob)
    for name, by_task in columns.items():
        for value in by_task.values():
            numbers = value if isinstance(value, list) and value else [value]
            if not all(type(number) in (int, float) for number in numbers):
                raise TypeError(f"the column {name!r} of a part's state holds something else than numbers")
    return columns
