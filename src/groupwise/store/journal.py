"""The journal of a run: every update with its metrics, its trajectories and their credit, in one SQLite file.

An update is written in one transaction, so that a run that is killed at any instant loses at most the update in flight.
Readers (reports, replay, resume) see whole updates only.
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
from types import TracebackType
from typing import Any

from groupwise.data.past_attempts import RecalledAttempt, Remembered
from groupwise.data.records import SetAside, Trajectory
from groupwise.data.step_columns import make_rows
from groupwise.parts.stateful import StateBefore
from groupwise.store.attempt_index import PastAttempts, write_past_attempts, write_recalled
from groupwise.store.journal_file import (
    BY_UPDATE,
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
from groupwise.system.errors import FileError

PANEL = "panel "
"""What the names of the panels' hashes begin with, in the table `about`."""
CLOCK = -1
"""The place of what the clock said about attempts played ahead, which differs between two runs of the same seed and is
in no digest."""


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
    faults: Sequence[Trajectory] = ()
    """Attempts that a fault ended; they take part in nothing, but are not forgotten."""
    recalled: Sequence[RecalledAttempt] = ()
    """Past attempts that took part, with their credit."""
    set_aside: Sequence[SetAside] = ()
    """Attempts that ended without a fault and took part in nothing."""
    request_words: Mapping[tuple[str, int], str] = field(default_factory=dict)
    """What the plan asked for an attempt with, in words, by task and attempt; nothing where its origin says it all."""
    states: Sequence[StateBefore] = ()
    """What stateful parts remembered when it began."""
    pending: Mapping[int, PendingAttempts] = field(default_factory=dict)
    """Attempts that were played while it was learnt, by the update that they are for; nothing without overlap."""


@dataclass(frozen=True, kw_only=True)
class Alarm:
    """Something that a run is watched for, and that was seen."""

    number: int
    """After which update."""
    name: str
    """Which alarm: its name in the section [alarms] of a run file."""
    action: str
    """What was to be done about it: warn, or stop the run."""
    sentence: str
    """What was seen, why it matters, and what to do next."""

    @property
    def line(self) -> str:
        """The alarm as a line of its own."""
        verb = "stopped by" if self.action == "stop" else "alarm"
        return f"{verb} {self.name} after update {self.number}: {self.sentence}"


@dataclass(frozen=True, kw_only=True)
class SettingChange:
    """A setting that is another from some update on."""

    number: int
    """After which update: the next one is the first with the new value."""
    path: str
    """Which setting, such as `training.learner.learning_rate`."""
    before: Any
    """Its value up to then; None = it was not set."""
    after: Any
    """Its value from then on; None = it is not set."""

    @property
    def line(self) -> str:
        """The change as a line of its own."""
        return f"from update {self.number + 1} on: {self.path} was {self.before!r}, is {self.after!r}"


@dataclass(frozen=True, kw_only=True)
class EvaluatedAttempt:
    """One attempt of an evaluation, as the journal keeps it."""

    number: int
    """After which update; 0 = before the first."""
    split: str
    """The panel's name."""
    seed: int
    """Which repetition of the evaluation."""
    task: str
    """The task's id."""
    attempt: int
    """Number of the attempt at the task."""
    panel: str
    """Digest of the panel's tasks: evaluations of equal digests can be compared."""
    tags: str
    """The task's labels, such as its family, joined by commas."""
    stop: str
    """Why the attempt ended."""
    success: float | None
    """1 = solved, 0 = not; None where the environment does not say."""
    outcome: float
    """The attempt's outcome, or the sum of its rewards."""
    steps: int
    """How many steps it took."""
    tokens: int | None = None
    """How many tokens it sampled; None = not counted."""


# Attempts that were played ahead are written with the update during which they were played, in its transaction, so that
# a run that goes on from there need not play them again, with weights that nobody has any more. They stay as long as a
# run may go on from there: for the newest update, and for those that have a checkpoint. They are no part of the chain
# of digests, since the update that learns from them writes them down again; a digest of their own stands in the
# checkpoint.


@dataclass(frozen=True, kw_only=True)
class PendingAttempts:
    """The attempts for one update that is still to be made, as blobs."""

    contents: Sequence[bytes]
    """All that two runs of the same seed have alike."""
    clock: bytes
    """What playing them took."""


class Journal:
    """Writes and reads a run's journal; opened `read_only`, it reads it as it is now, while the run goes on writing."""

    def __init__(self, path: Path, *, read_only: bool = False) -> None:
        self._path = path
        try:
            self._database = connect_to_read(path) if read_only else connect(path)
        except sqlite3.DatabaseError as error:  # what damage is, the database says itself
            raise FileError(
                f"{path}: the journal cannot be opened ({error}); see that it may be read and, to go on, written, on a "
                "disk with space"
            ) from None
        if read_only:
            try:
                check_schema(self._database, path)
            except FileError:
                self._database.close()
                raise

    def __enter__(self) -> Journal:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the file."""
        self._database.close()

    def check_open(self) -> None:
        """Raise a FileError where the journal was closed."""
        self._database.check_open()

    @property
    def past_attempts(self) -> PastAttempts:
        """Past attempts by task."""
        return PastAttempts(self._database)

    # Writing: each in one transaction.

    @contextmanager
    def _transaction(self, what: str) -> Iterator[None]:
        try:
            with self._database:
                self._database.execute("BEGIN IMMEDIATE")
                yield
        except (sqlite3.DatabaseError, OSError) as error:
            if isinstance(error, sqlite3.IntegrityError | sqlite3.ProgrammingError):  # our fault, not the disk's
                raise
            raise self._tell_write_failure(what, error) from None

    def _tell_write_failure(self, what: str, error: Exception) -> FileError:
        return FileError(
            f"{self._path}: {what} could not be written ({error}); what was there is untouched. Free some "
            "space, see that the folder may be written, or end whoever else writes there, then go on with --resume"
        )

    def _insert(self, table: str, rows: Iterable[Sequence[Any]], *, how: str = "INSERT") -> None:
        """Write rows whose values stand in the order of the table's columns."""
        listed = list(rows)
        if listed:
            self._database.executemany(f"{how} INTO {table} VALUES ({', '.join('?' * len(listed[0]))})", listed)

    def name_panels(self, hashes: Mapping[str, str]) -> None:
        """Write down which tasks the run is about: the hash of each split's panel; what was named before stays."""
        with self._transaction("the panels' hashes"):
            panels = ((f"{PANEL}{split}", digest) for split, digest in hashes.items())
            self._insert("about", panels, how="INSERT OR IGNORE")

    def write(self, update: Update, *, checkpoints: Collection[int] = ()) -> None:
        """Write an update whole, or not at all; of what was played ahead, only what `checkpoints` go on with stays."""
        assert len(update.credit) == len(update.trajectories), "every trajectory has its credit"
        number = update.number
        with self._transaction(f"update {number}"):
            before = self._digest_before(number)
            self._insert("updates", [(number, update.version, None)])
            self._insert("metrics", ((number, name, value) for name, value in sorted(update.metrics.items())))
            self._insert(
                "trajectories",
                map(_trajectory_values, [number] * len(update.credit), update.trajectories, update.credit),
            )
            self._insert(
                "faults",
                ((number, t.task.id, t.attempt, t.stop.value, len(t.steps), t.error or "") for t in update.faults),
            )
            write_past_attempts(self._database, number, update.trajectories, update.credit)
            write_recalled(self._database, number, update.recalled)
            for attempt in update.set_aside:
                *about, origin, _, steps, _, _ = _trajectory_values(number, attempt.trajectory, ())
                self._insert("set_aside", [(*about, origin, attempt.by, steps)])
            asked_for = sorted(update.request_words.items())
            self._insert("asked_for", ((number, *attempt, words) for attempt, words in asked_for))
            self._insert(
                "part_states",
                (
                    (number, state.path, state.kind, pack_blob(state.state), pack_blob(state.columns))
                    for state in update.states
                ),
            )
            self._write_pending(number, update.pending, checkpoints)
            digest = digest_update(self._database, number, before)
            self._database.execute("UPDATE updates SET digest = ? WHERE number = ?", (digest, number))

    def _write_pending(self, number: int, pending: Mapping[int, PendingAttempts], checkpoints: Collection[int]) -> None:
        """Write what was played ahead during an update; what nobody can go on from goes."""
        self._insert(
            "pending",
            (
                (number, following, place, content)
                for following, attempts in pending.items()
                for place, content in enumerate([attempts.clock, *attempts.contents], start=CLOCK)
            ),
        )
        earlier = self._database.execute("SELECT DISTINCT number FROM pending WHERE number < ?", (number,)).fetchall()
        for (before,) in earlier:
            if before not in checkpoints:
                self._database.execute("DELETE FROM pending WHERE number = ?", (before,))

    def write_evaluation(self, attempts: Sequence[EvaluatedAttempt]) -> None:
        """Write an evaluation's attempts, all seeds at once; one of the same update and split is replaced whole."""
        with self._transaction("the evaluation"):
            self._database.executemany(
                "DELETE FROM evaluations WHERE number = ? AND split = ?",
                {(attempt.number, attempt.split) for attempt in attempts},
            )
            self._insert("evaluations", map(astuple, attempts))

    def write_alarms(self, alarms: Sequence[Alarm]) -> None:
        """Write alarms that were raised."""
        with self._transaction("an alarm"):
            self._insert("alarms", map(astuple, alarms), how="INSERT OR REPLACE")

    def write_changes(self, number: int, changes: Sequence[SettingChange]) -> None:
        """Write which settings are others after an update; what was written for it before goes."""
        with self._transaction("what changed in the settings"):
            self._database.execute("DELETE FROM changes WHERE number = ?", (number,))
            self._insert(
                "changes",
                ((number, change.path, json.dumps(change.before), json.dumps(change.after)) for change in changes),
            )

    def forget_after(self, number: int) -> None:
        """Drop the updates after one: those that a resumed run will make again."""
        with self._transaction(f"what came after update {number}"):
            for table in (*BY_UPDATE, "pending"):
                self._database.execute(f"DELETE FROM {table} WHERE number > ?", (number,))

    # The chain of digests, and damage.

    def _digest_before(self, number: int) -> str:
        """The end of the chain before an update."""
        row = self._database.execute(
            "SELECT digest FROM updates WHERE number < ? ORDER BY number DESC LIMIT 1", (number,)
        ).fetchone()
        return START if row is None else str(row[0])

    def digest(self) -> str:
        """The end of the chain of digests: what a checkpoint holds of the updates before it."""
        return self._digest_before(self.last_number() + 1)

    def check_digest_chain(self, last: int | None = None) -> DigestChain:
        """How far the updates up to one, or all of them, are as they were written."""
        return check_digest_chain(self._database, last)

    def find_damage(self) -> str | None:
        """What SQLite finds wrong with the file, in words; None where it finds nothing."""
        return find_damage(self._database)

    def rewrite_up_to(self, number: int) -> None:
        """Replace a damaged file by a new one with the updates up to a number, which must be sound."""
        try:
            self._database = rewrite_up_to(self._database, number)
        except (sqlite3.DatabaseError, OSError) as error:
            raise self._tell_write_failure(f"the updates up to {number}", error) from None

    # Reading.

    def _read(self, query: str, *values: Any) -> list[dict[str, Any]]:
        """Rows by the names of their columns; a FileError where a cell holds what its column never does."""
        cursor = self._database.execute(query, values)
        names = [column[0] for column in cursor.description]
        with report_damage(self._path):
            return [name_cells(names, row) for row in cursor]

    def panels(self) -> dict[str, str]:
        """The hash of each split's panel, as the run named it when it began."""
        rows = self._database.execute("SELECT key, value FROM about WHERE key LIKE ? ORDER BY key", (f"{PANEL}%",))
        return {str(key).removeprefix(PANEL): str(value) for key, value in rows}

    def last_number(self) -> int:
        """Number of the last update; -1 where there is none."""
        number = self._database.execute("SELECT MAX(number) FROM updates").fetchone()[0]
        return -1 if number is None else int(number)

    def update_numbers(self) -> list[int]:
        """Numbers of all updates, in order."""
        return [int(number) for (number,) in self._database.execute("SELECT number FROM updates ORDER BY number")]

    def curve(self, name: str) -> list[tuple[int, float]]:
        """A metric over the updates."""
        rows = self._database.execute("SELECT number, value FROM metrics WHERE name = ? ORDER BY number", (name,))
        with report_damage(self._path):
            return [(int(number), float(value)) for number, value in rows if value is not None]

    def metrics(self, number: int) -> dict[str, float]:
        """The metrics of an update, by name; none where there is no such update."""
        rows = self._database.execute("SELECT name, value FROM metrics WHERE number = ?", (number,))
        with report_damage(self._path):
            return {str(name): float(value) for name, value in rows if value is not None}

    def metric_names(self) -> list[str]:
        """Every metric that some update has."""
        return [str(name) for (name,) in self._database.execute("SELECT DISTINCT name FROM metrics ORDER BY name")]

    def attempts(self) -> list[dict[str, Any]]:
        """Every attempt of every update without its steps: ids, how it ended, outcome and success."""
        return self._read(
            "SELECT number, task, attempt, stop, outcome, success, origin, error FROM trajectories "
            "ORDER BY number, task, attempt"
        )

    def trajectories(self, number: int, *, task: str | None = None) -> Iterator[dict[str, Any]]:
        """What was sampled for an update, or for one task of it: ids, outcome, the rows of its steps, their credit."""
        cursor = self._database.execute(
            "SELECT * FROM trajectories WHERE number = ? AND task = COALESCE(?, task) ORDER BY task, attempt",
            (number, task),
        )
        names = [column[0] for column in cursor.description]
        for row in cursor:
            with report_damage(self._path):
                cells = name_cells(names, row)
                cells["steps"], cells["credit"] = unpack_blob(cells["steps"]), unpack_blob(cells["credit"])
            yield cells

    def faults(self, number: int) -> list[dict[str, Any]]:
        """The attempts at an update that a fault ended: task, attempt, stop, steps until then, and the error."""
        return self._read("SELECT task, attempt, stop, steps, error FROM faults WHERE number = ?", number)

    def set_aside(self, number: int) -> list[dict[str, Any]]:
        """The attempts at an update that took part in nothing: ids, how they ended, who set them aside, their steps."""
        rows = self._read("SELECT * FROM set_aside WHERE number = ? ORDER BY task, attempt", number)
        with report_damage(self._path):
            return [row | {"steps": unpack_blob(row["steps"])} for row in rows]

    def request_words(self, number: int) -> dict[tuple[str, int], str]:
        """What the plan asked for the attempts at an update with, by task and attempt."""
        rows = self._read("SELECT task, attempt, words FROM asked_for WHERE number = ?", number)
        return {(row["task"], row["attempt"]): row["words"] for row in rows}

    def evaluations(self, number: int | None = None) -> list[EvaluatedAttempt]:
        """Every attempt of the evaluations after an update (None = of all), by update, split, seed and task."""
        rows = self._read(
            "SELECT * FROM evaluations WHERE number = COALESCE(?, number) ORDER BY number, split, seed, task, attempt",
            number,
        )
        return [EvaluatedAttempt(**row) for row in rows]

    def alarms(self) -> list[Alarm]:
        """Every alarm that was raised, by update and name."""
        return [Alarm(**row) for row in self._read("SELECT * FROM alarms ORDER BY number, name")]

    def changes(self) -> list[SettingChange]:
        """Every setting that changed when the run went on, by update and path."""
        rows = self._read("SELECT * FROM changes ORDER BY number, path")
        with report_damage(self._path):
            return [
                SettingChange(**{**row, "before": json.loads(row["before"]), "after": json.loads(row["after"])})
                for row in rows
            ]

    def states_before(self, number: int) -> list[StateBefore]:
        """What stateful parts remembered when an update began, by path; none in a run that has no such part."""
        rows = self._read("SELECT path, kind, state, columns FROM part_states WHERE number = ? ORDER BY path", number)
        with report_damage(self._path):
            return [
                StateBefore(
                    **{**row, "state": _unpack_object(row["state"]), "columns": _unpack_columns(row["columns"])}
                )
                for row in rows
            ]

    def read_pending(self, number: int) -> dict[int, PendingAttempts]:
        """What was played ahead while an update was learnt, by the update that it is for."""
        contents: dict[int, list[bytes]] = {}
        for row in self._read(
            "SELECT following, content FROM pending WHERE number = ? ORDER BY following, place", number
        ):
            contents.setdefault(row["following"], []).append(row["content"])
        return {
            following: PendingAttempts(clock=clock, contents=rest) for following, (clock, *rest) in contents.items()
        }

    def list_pending(self, number: int) -> list[int]:
        """The updates that something was played ahead for while an update was learnt."""
        query = "SELECT DISTINCT following FROM pending WHERE number = ? ORDER BY following"
        return [int(following) for (following,) in self._database.execute(query, (number,))]

    def digest_pending(self, number: int) -> str | None:
        """The digest of what was played ahead while an update was learnt; None where there is nothing."""
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
        trajectory.attempt,
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
