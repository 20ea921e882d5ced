"""The SQLite file of a journal: its tables, how it is opened, and the errors if SQLite cannot read it."""

from __future__ import annotations

import hashlib
import json
import sqlite3
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from pydantic_core import PydanticSerializationError, to_json

from groupwise.data.records import SCHEMA
from groupwise.store.run_folder import DAMAGED_JOURNAL
from groupwise.system.errors import FileError, GroupwiseError
from groupwise.system.files import is_shared_with_machines
from groupwise.system.text import quote_line

TABLES = """
CREATE TABLE IF NOT EXISTS about (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS updates (number INTEGER PRIMARY KEY, version INTEGER NOT NULL, digest TEXT) STRICT;
CREATE TABLE IF NOT EXISTS metrics (
    number INTEGER NOT NULL, name TEXT NOT NULL, value REAL, PRIMARY KEY (number, name)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS trajectories (
    number INTEGER NOT NULL, task TEXT NOT NULL, rollout INTEGER NOT NULL, stop TEXT NOT NULL, outcome REAL NOT NULL,
    success REAL, origin TEXT NOT NULL, error TEXT, steps BLOB NOT NULL, credit BLOB NOT NULL, parent TEXT,
    PRIMARY KEY (number, task, rollout)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS faults (
    number INTEGER NOT NULL, task TEXT NOT NULL, rollout INTEGER NOT NULL, stop TEXT NOT NULL, steps INTEGER NOT NULL,
    error TEXT NOT NULL, PRIMARY KEY (number, task, rollout)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS evaluations (
    number INTEGER NOT NULL, name TEXT NOT NULL, split TEXT NOT NULL, seed INTEGER NOT NULL, task TEXT NOT NULL,
    rollout INTEGER NOT NULL, task_set TEXT NOT NULL, tags TEXT NOT NULL, stop TEXT NOT NULL, success REAL,
    outcome REAL NOT NULL, steps INTEGER NOT NULL, tokens INTEGER, score REAL,
    PRIMARY KEY (number, name, seed, task, rollout)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS past_rollouts (
    task TEXT NOT NULL, number INTEGER NOT NULL, rollout INTEGER NOT NULL, version INTEGER NOT NULL,
    origin TEXT NOT NULL, score REAL NOT NULL, credit REAL NOT NULL, states BLOB NOT NULL, rewards BLOB NOT NULL,
    PRIMARY KEY (task, number, rollout)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS past_rollouts_by_update ON past_rollouts (number);
CREATE TABLE IF NOT EXISTS replayed (
    number INTEGER NOT NULL, task TEXT NOT NULL, rollout INTEGER NOT NULL, from_task TEXT NOT NULL,
    from_number INTEGER NOT NULL, from_rollout INTEGER NOT NULL, why TEXT NOT NULL, log_ratio REAL,
    keeps_credit INTEGER NOT NULL, credit BLOB NOT NULL, PRIMARY KEY (number, task, rollout)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS set_aside (
    number INTEGER NOT NULL, task TEXT NOT NULL, rollout INTEGER NOT NULL, stop TEXT NOT NULL, outcome REAL NOT NULL,
    success REAL, origin TEXT NOT NULL, set_aside_by TEXT NOT NULL, steps BLOB NOT NULL,
    PRIMARY KEY (number, task, rollout)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS asked_for (
    number INTEGER NOT NULL, task TEXT NOT NULL, rollout INTEGER NOT NULL, words TEXT NOT NULL,
    PRIMARY KEY (number, task, rollout)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS part_states (
    number INTEGER NOT NULL, path TEXT NOT NULL, kind TEXT NOT NULL, state BLOB NOT NULL, columns BLOB NOT NULL,
    PRIMARY KEY (number, path)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS alarms (
    number INTEGER NOT NULL, name TEXT NOT NULL, action TEXT NOT NULL, sentence TEXT NOT NULL,
    PRIMARY KEY (number, name)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS changes (
    number INTEGER NOT NULL, path TEXT NOT NULL, before TEXT NOT NULL, after TEXT NOT NULL,
    PRIMARY KEY (number, path)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS pending (
    number INTEGER NOT NULL, following INTEGER NOT NULL, place INTEGER NOT NULL, content BLOB NOT NULL,
    PRIMARY KEY (number, following, place)
) WITHOUT ROWID;
"""
"""`pending` holds rollouts that were sampled ahead. `number` is the update that wrote them, `following` the update that
learns from them."""
LINKED_TABLES = (
    *("updates", "metrics", "trajectories", "faults", "past_rollouts", "replayed"),
    *("set_aside", "asked_for", "part_states"),
)
"""Tables in the chain of digests, written in the transaction of their update."""
BESIDE_UPDATES = ("evaluations", "alarms", "changes")
"""Tables that are written after an update, or before the first one. They are not in the chain of digests."""
CELLS: Mapping[str, type | tuple[type, ...]] = {
    **dict.fromkeys(("number", "rollout", "seed", "following"), int),
    **dict.fromkeys(("task", "stop", "origin", "split", "task_set", "tags", "set_aside_by", "words"), str),
    **dict.fromkeys(("name", "action", "sentence", "path", "before", "after", "kind"), str),
    **dict.fromkeys(("error", "parent"), (str, type(None))),
    "outcome": (int, float),
    **dict.fromkeys(("success", "score"), (int, float, type(None))),
    "tokens": (int, type(None)),
    "steps": (bytes, int),  # the steps of a rollout, or their number
    **dict.fromkeys(("credit", "state", "columns", "content"), bytes),
}
"""The types that a column may hold, for all columns that reports read, in any table."""
UNREADABLE = {
    sqlite3.SQLITE_ERROR,  # for example a missing table or column, or text that is not UTF-8
    sqlite3.SQLITE_CORRUPT,
    sqlite3.SQLITE_NOTADB,
    sqlite3.SQLITE_FORMAT,
    sqlite3.SQLITE_IOERR_READ,
    sqlite3.SQLITE_IOERR_SHORT_READ,
}
"""SQLite's error codes for a file whose content it cannot read."""
MAX_WAIT, MAX_SHARED_WAIT = 5.0, 60.0
"""Seconds that a writer waits for another process. On a shared file system readers may hold the file for a moment."""


class JournalDatabase(sqlite3.Connection):
    """A connection whose errors name the journal, if it is damaged or was closed."""

    path: Path
    is_closed = False

    def execute(self, sql: str, values: Any = (), /) -> sqlite3.Cursor:
        self.check_open()
        cursor: sqlite3.Cursor = self.cursor(_Cursor).execute(sql, values)
        return cursor

    def executemany(self, sql: str, rows: Iterable[Any], /) -> sqlite3.Cursor:
        self.check_open()
        cursor: sqlite3.Cursor = self.cursor(_Cursor).executemany(sql, rows)
        return cursor

    def close(self) -> None:
        self.is_closed = True
        super().close()

    def __enter__(self) -> Self:
        self.check_open()
        return super().__enter__()

    def check_open(self) -> None:
        """Raise a FileError if it was closed."""
        if self.is_closed:
            raise FileError(f"{self.path}: the run is closed; open it again to continue or to read it")


def _report_unreadable(method: Callable[..., Any]) -> Any:
    """A method of a cursor that raises a FileError if the file is damaged; other errors stay as they are."""

    def ask(cursor: sqlite3.Cursor, *arguments: Any) -> Any:
        try:
            return method(cursor, *arguments)
        except (sqlite3.DatabaseError, UnicodeDecodeError) as error:  # the latter if SQLite's message quotes bytes
            code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR)
            if isinstance(error, sqlite3.IntegrityError) or not {code, code & 0xFF} & UNREADABLE:
                raise
            assert isinstance(cursor.connection, JournalDatabase), "it made the cursor"
            raise _make_damage_error(cursor.connection.path, error) from None

    return ask


class _Cursor(sqlite3.Cursor):
    execute = _report_unreadable(sqlite3.Cursor.execute)
    executemany = _report_unreadable(sqlite3.Cursor.executemany)
    fetchone = _report_unreadable(sqlite3.Cursor.fetchone)
    fetchall = _report_unreadable(sqlite3.Cursor.fetchall)
    __next__ = _report_unreadable(sqlite3.Cursor.__next__)


@contextmanager
def report_damage(path: Path) -> Iterator[None]:
    """Report the journal as damaged if a value in it has the wrong form."""
    try:
        yield
    except GroupwiseError:
        raise
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError) as error:
        raise _make_damage_error(path, error) from None


def name_cells(names: Sequence[str], row: Sequence[Any]) -> dict[str, Any]:
    """A row as a dict; TypeError if a cell has the wrong type.

    SQLite stores any value in any column, so a damaged or forged journal may hold text in a column of numbers.
    """
    cells = dict(zip(names, row, strict=True))
    for name, value in cells.items():
        if not isinstance(value, CELLS[name]):
            raise TypeError(f"the column {name} holds {value!r}")
    return cells


def _make_damage_error(path: Path, error: Exception) -> FileError:
    what = quote_line(str(error), limit=200) or type(error).__name__
    if getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_NOTADB:
        return FileError(f"{path}: not a journal: {what}; give the folder of a run")
    return FileError(
        f"{path}: the journal is damaged ({what}); `groupwise train --resume` says from which checkpoint the run can "
        "go on"
    )


def connect(path: Path) -> JournalDatabase:
    """Open a journal for writing; a new one gets its tables."""
    # SQLite's write-ahead log needs shared memory, which works between processes of one machine only.
    is_shared = is_shared_with_machines(path.parent)
    database = _open(str(path), path, uri=False, timeout=MAX_SHARED_WAIT if is_shared else MAX_WAIT)
    try:
        check_schema(database, path)  # before anything is written into a file with another schema
        database.execute(f"PRAGMA journal_mode = {'DELETE' if is_shared else 'WAL'}")
        database.executescript(f"BEGIN IMMEDIATE; {TABLES} COMMIT;")  # one write instead of one per table
        database.execute("INSERT OR IGNORE INTO about VALUES ('schema', ?)", (str(SCHEMA),))
    except Exception:
        database.close()
        raise
    return database


def check_schema(database: JournalDatabase, path: Path) -> None:
    """Raise a FileError if the journal has the schema of another version; an empty one has none yet."""
    if not database.execute("SELECT 1 FROM sqlite_master WHERE name = 'about'").fetchone():
        return
    row = database.execute("SELECT value FROM about WHERE key = 'schema'").fetchone()
    if row is not None and row[0] != str(SCHEMA):
        raise FileError(
            f"{path}: the journal has schema {quote_line(str(row[0]), limit=20)}, this version reads {SCHEMA}; use "
            "the version that wrote it"
        )


def connect_to_read(path: Path) -> JournalDatabase:
    """Open within one read transaction: all queries see the same updates.

    On a shared file system the journal has no write-ahead log, and a read transaction would block its writer. There
    each query sees the updates of its own moment.
    """
    try:
        database = _snapshot(f"{path.absolute().as_uri()}?mode=ro", path)
    except sqlite3.OperationalError:
        # To read beside a writer, SQLite needs its own files next to the journal, and cannot make them in a read-only
        # folder. There a journal without a log is complete, and one with a log is not.
        log, _, before = _logs(path)
        if log.exists() and log.stat().st_size > 0:
            raise FileError(
                f"{path}: its last updates are in {log.name}, which cannot be read in a read-only folder; copy the "
                "folder to a place where you can write, and open the copy"
            ) from None
        if before.exists() and before.stat().st_size > 0:
            raise FileError(
                f"{path}: the run was killed while it wrote an update, and {before.name} holds the previous content; "
                "`groupwise train --resume` restores it and resumes the run"
            ) from None
        return _snapshot(f"{path.absolute().as_uri()}?mode=ro&immutable=1", path)
    if database.execute("PRAGMA journal_mode").fetchone()[0] != "wal":
        database.execute("COMMIT")
    return database


def _snapshot(address: str, path: Path) -> JournalDatabase:
    database = _open(address, path, uri=True, timeout=MAX_SHARED_WAIT)
    try:
        database.execute("BEGIN")
        database.execute("SELECT 1 FROM sqlite_master").fetchone()  # a transaction begins with its first read
    except Exception:
        database.close()
        raise
    return database


def _open(address: str, path: Path, *, uri: bool, timeout: float) -> JournalDatabase:
    database = sqlite3.connect(address, uri=uri, isolation_level=None, factory=JournalDatabase, timeout=timeout)
    database.path = path
    return database


def find_damage(database: JournalDatabase) -> str | None:
    """What SQLite finds wrong with the pages of the file, or None."""
    try:
        row = database.execute("PRAGMA quick_check(1)").fetchone()
    except FileError as error:
        return str(error)
    return None if row is None or row[0] == "ok" else str(row[0])


def rewrite_up_to(database: JournalDatabase, number: int) -> JournalDatabase:
    """Replace a damaged file by a new one with the updates up to a number; the damaged file is kept beside it.

    Evaluations, alarms and changed settings that cannot be read are left out. The run repeats the evaluations that it
    needs.
    """
    path = database.path
    draft, kept = path.with_name(f".{path.name}.tmp"), path.with_name(DAMAGED_JOURNAL)
    for stale in (draft, *_logs(draft)):
        stale.unlink(missing_ok=True)
    copy = connect(draft)
    with copy:
        copy.execute("BEGIN IMMEDIATE")
        copy.execute("DELETE FROM about")
        _copy(copy, "about", database.execute("SELECT * FROM about").fetchall())
        for table in LINKED_TABLES:
            for update in range(1, number + 1):  # one by one, as they were checked
                rows = database.execute(f"SELECT * FROM {table} WHERE number = ?", (update,)).fetchall()
                _copy(copy, table, rows)
        for update in range(number + 1):  # those that can be read: a run that resumes compares the digest
            with suppress(FileError):
                rows = database.execute("SELECT * FROM pending WHERE number = ?", (update,)).fetchall()
                _copy(copy, "pending", rows)
        for table in BESIDE_UPDATES:
            with suppress(FileError):
                rows = database.execute(f"SELECT * FROM {table} WHERE number <= ?", (number,)).fetchall()
                _copy(copy, table, rows)
    copy.close()
    with suppress(sqlite3.Error):
        database.close()
    # Without this, SQLite would apply the old log to the new file.
    for there, here in zip((path, *_logs(path)), (kept, *_logs(kept)), strict=True):
        here.unlink(missing_ok=True)
        if there.exists():
            there.rename(here)
    draft.rename(path)
    return connect(path)


def _logs(path: Path) -> tuple[Path, Path, Path]:
    """SQLite's own files beside a database: the write-ahead log and its index, or else the rollback journal."""
    new, index, before = (path.with_name(f"{path.name}-{name}") for name in ("wal", "shm", "journal"))
    return new, index, before


def _copy(target: JournalDatabase, table: str, rows: Sequence[Sequence[Any]]) -> None:
    if rows:
        target.executemany(f"INSERT INTO {table} VALUES ({', '.join('?' * len(rows[0]))})", rows)


# Values as blobs: compressed JSON, which keeps every digit of a number.

_LEAVES = frozenset({str, int, float, bool, type(None)})


def pack_blob(value: object) -> bytes:
    """A JSON value as a blob; TypeError for other values, such as a set, which has no order."""
    try:
        written = to_json(value, inf_nan_mode="constants")  # several times as fast as json.dumps
    except PydanticSerializationError as error:  # a lone surrogate, or endless nesting
        raise TypeError(f"no form in JSON: {error}") from None
    holders: list[Any] = [[value]]
    for holder in holders:  # grows during the loop
        if isinstance(holder, dict):
            if not {str}.issuperset(map(type, holder)):
                strange = next(key for key in holder if type(key) is not str)
                raise TypeError(f"JSON names are text, but an object has {strange!r}")
            holder = holder.values()
        if _LEAVES.issuperset(map(type, holder)):  # long lists hold only numbers
            continue
        for entry in holder:
            if isinstance(entry, dict | list | tuple):
                holders.append(entry)
            elif not isinstance(entry, str | int | float | None):
                raise TypeError(f"a {type(entry).__module__}.{type(entry).__name__} has no form in JSON")
    return zlib.compress(written, 1)


def unpack_blob(blob: bytes) -> Any:
    """The value of a blob, with lists for tuples; ValueError for other bytes."""
    try:
        return json.loads(zlib.decompress(blob))
    except zlib.error as error:
        raise ValueError(f"a blob cannot be unpacked: {error}") from None


# The chain of digests: each digest covers the digest before it and all rows of its update.
#
# A checkpoint holds the last digest. If an update is missing, or a row was changed, the journal no longer gives this
# digest, and the run does not resume with a wrong past. Times, and how servers shared the work, are left out: they
# differ between two runs with the same seed. Evaluations are left out because nothing learns from them.

START = hashlib.sha256(b"groupwise journal").hexdigest()
"""The digest before the first update."""
LINKED = (
    "SELECT number, version FROM updates WHERE number = ?",
    "SELECT name, value FROM metrics WHERE number = ? AND name NOT GLOB 'seconds/*' AND name NOT GLOB 'speed/*' "
    "AND name NOT GLOB 'replicas/*' ORDER BY name",
    "SELECT task, rollout, stop, outcome, success, origin, error, steps, credit, parent FROM trajectories "
    "WHERE number = ? ORDER BY task, rollout",
    "SELECT task, rollout, stop, steps, error FROM faults WHERE number = ? ORDER BY task, rollout",
    "SELECT task, rollout, version, origin, score, credit, states, rewards FROM past_rollouts WHERE number = ? "
    "ORDER BY task, rollout",
    "SELECT task, rollout, from_task, from_number, from_rollout, why, log_ratio, keeps_credit, credit FROM replayed "
    "WHERE number = ? ORDER BY task, rollout",
    "SELECT task, rollout, stop, outcome, success, origin, set_aside_by, steps FROM set_aside WHERE number = ? "
    "ORDER BY task, rollout",
    "SELECT task, rollout, words FROM asked_for WHERE number = ? ORDER BY task, rollout",
    "SELECT path, kind, state, columns FROM part_states WHERE number = ? ORDER BY path",
)
"""What a digest covers. Columns are named: a column that a later version adds must not change old digests."""


@dataclass(frozen=True, kw_only=True)
class DigestChain:
    """The updates of a journal that are unchanged since they were written."""

    digests: tuple[str, ...]
    """The digest before the first update, then one after each unchanged update."""
    fault: str | None
    """What is wrong with the next update, or None."""

    def leads_to(self, number: int, digest: object) -> bool:
        """Whether all updates up to a number are unchanged, and this is the digest after them."""
        return 0 <= number < len(self.digests) and self.digests[number] == digest


def digest_update(database: JournalDatabase, number: int, previous: str) -> str:
    """The digest after an update, computed from its rows in the file."""
    digest = hashlib.sha256(previous.encode())
    for query in LINKED:
        digest.update(b"\0")
        for row in database.execute(query, (number,)).fetchall():
            # Blobs are added as bytes: as text they would take several times as long.
            plain, blobs = list(row), b""
            for place, value in enumerate(row):
                if isinstance(value, bytes):
                    plain[place], blobs = (len(value),), blobs + value
            digest.update(repr(plain).encode() + blobs)
    return digest.hexdigest()


def check_digest_chain(database: JournalDatabase, last: int | None = None) -> DigestChain:
    """Compute the digests of the updates 1 to `last` (None = all) again, and stop at the first that differs."""
    digests, fault = [START], None
    try:
        while fault is None and (last is None or len(digests) <= last):
            number = len(digests)
            row = database.execute("SELECT digest FROM updates WHERE number = ?", (number,)).fetchone()
            if row is None:
                query = "SELECT 1 FROM updates WHERE number > ? LIMIT 1"
                if last is None and database.execute(query, (number,)).fetchone() is None:
                    break
                fault = f"update {number} is missing"
            elif digest_update(database, number, digests[-1]) != row[0]:
                fault = f"update {number} is not as it was written"
            else:
                digests.append(row[0])
    except FileError:
        fault = f"update {len(digests)} cannot be read"
    return DigestChain(digests=tuple(digests), fault=fault)
