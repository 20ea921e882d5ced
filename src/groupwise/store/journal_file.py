"""The file of a journal: its tables, how it is opened, and what is said where SQLite cannot go on."""

from __future__ import annotations

import hashlib
import json
import sqlite3
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from pydantic_core import PydanticSerializationError, to_json

from groupwise.data.records import SCHEMA
from groupwise.store.run_folder import DAMAGED_JOURNAL
from groupwise.system.errors import FileError, GroupwiseError
from groupwise.system.files import find_file_system
from groupwise.system.text import quote_line

TABLES = """
CREATE TABLE IF NOT EXISTS about (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS updates (number INTEGER PRIMARY KEY, version INTEGER NOT NULL, digest TEXT) STRICT;
CREATE TABLE IF NOT EXISTS metrics (
    number INTEGER NOT NULL, name TEXT NOT NULL, value REAL, PRIMARY KEY (number, name)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS trajectories (
    number INTEGER NOT NULL, task TEXT NOT NULL, attempt INTEGER NOT NULL, stop TEXT NOT NULL, outcome REAL NOT NULL,
    success REAL, origin TEXT NOT NULL, error TEXT, steps BLOB NOT NULL, credit BLOB NOT NULL, parent TEXT,
    PRIMARY KEY (number, task, attempt)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS faults (
    number INTEGER NOT NULL, task TEXT NOT NULL, attempt INTEGER NOT NULL, stop TEXT NOT NULL, steps INTEGER NOT NULL,
    error TEXT NOT NULL, PRIMARY KEY (number, task, attempt)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS evaluations (
    number INTEGER NOT NULL, split TEXT NOT NULL, seed INTEGER NOT NULL, task TEXT NOT NULL, attempt INTEGER NOT NULL,
    panel TEXT NOT NULL, tags TEXT NOT NULL, stop TEXT NOT NULL, success REAL, outcome REAL NOT NULL,
    steps INTEGER NOT NULL, tokens INTEGER, PRIMARY KEY (number, split, seed, task, attempt)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS history (
    task TEXT NOT NULL, number INTEGER NOT NULL, attempt INTEGER NOT NULL, version INTEGER NOT NULL,
    origin TEXT NOT NULL, score REAL NOT NULL, credit REAL NOT NULL, states BLOB NOT NULL, rewards BLOB NOT NULL,
    PRIMARY KEY (task, number, attempt)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS history_by_update ON history (number);
CREATE TABLE IF NOT EXISTS recalled (
    number INTEGER NOT NULL, task TEXT NOT NULL, attempt INTEGER NOT NULL, from_task TEXT NOT NULL,
    from_number INTEGER NOT NULL, from_attempt INTEGER NOT NULL, why TEXT NOT NULL, log_ratio REAL,
    keeps_credit INTEGER NOT NULL, credit BLOB NOT NULL, PRIMARY KEY (number, task, attempt)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS set_aside (
    number INTEGER NOT NULL, task TEXT NOT NULL, attempt INTEGER NOT NULL, stop TEXT NOT NULL, outcome REAL NOT NULL,
    success REAL, origin TEXT NOT NULL, set_aside_by TEXT NOT NULL, steps BLOB NOT NULL,
    PRIMARY KEY (number, task, attempt)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS asked_for (
    number INTEGER NOT NULL, task TEXT NOT NULL, attempt INTEGER NOT NULL, words TEXT NOT NULL,
    PRIMARY KEY (number, task, attempt)
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
"""Of `pending`, what was played ahead, `number` is the update that it was written with, `following` the one that it is
for."""
BY_UPDATE = (
    "updates",
    "metrics",
    "trajectories",
    "faults",
    "evaluations",
    "history",
    "recalled",
    "set_aside",
    "asked_for",
    "part_states",
    "alarms",
    "changes",
)
"""The tables whose rows belong to an update."""
BESIDE_UPDATES = ("evaluations", "alarms", "changes")
"""Those that are written after the update, before the first one too, and are no part of the chain of digests."""
_MAYBE_TEXT, _NUMBER, _MAYBE_NUMBER = (str, type(None)), (int, float), (int, float, type(None))
CELLS: Mapping[str, type | tuple[type, ...]] = {
    **dict.fromkeys(("number", "attempt", "seed", "following"), int),
    **dict.fromkeys(("task", "stop", "origin", "split", "panel", "tags", "set_aside_by", "words"), str),
    **dict.fromkeys(("name", "action", "sentence", "path", "before", "after", "kind"), str),
    **dict.fromkeys(("error", "parent"), _MAYBE_TEXT),
    "outcome": _NUMBER,
    "success": _MAYBE_NUMBER,
    "tokens": (int, type(None)),
    "steps": (bytes, int),  # the steps of an attempt, or how many there were
    **dict.fromkeys(("credit", "state", "columns", "content"), bytes),
}
"""What the columns hold that reports read, whichever table they stand in."""
UNREADABLE = {
    sqlite3.SQLITE_ERROR,  # among others: a table or a column that is not there, text that is not UTF-8
    sqlite3.SQLITE_CORRUPT,
    sqlite3.SQLITE_NOTADB,
    sqlite3.SQLITE_FORMAT,
    sqlite3.SQLITE_IOERR_READ,
    sqlite3.SQLITE_IOERR_SHORT_READ,
}
"""What SQLite says of a file whose content it cannot make sense of."""
MAX_WAIT, MAX_SHARED_WAIT = 5.0, 60.0
"""Seconds that a writer waits for another process that has the file; the latter where readers hold it for a moment."""
UNSOUND = (sqlite3.DatabaseError, UnicodeDecodeError)
"""What may be raised for it; the latter where its message quotes what is no text."""


class JournalDatabase(sqlite3.Connection):
    """A connection that says in a sentence which journal is damaged, or was closed, whoever comes upon it."""

    path: Path
    """Whose it is."""
    is_closed = False
    """Whether `close` was called."""

    def execute(self, sql: str, values: Any = (), /) -> sqlite3.Cursor:
        """As in sqlite3."""
        self.check_open()
        return self.cursor(_Cursor).execute(sql, values)

    def executemany(self, sql: str, rows: Iterable[Any], /) -> sqlite3.Cursor:
        """As in sqlite3."""
        self.check_open()
        return self.cursor(_Cursor).executemany(sql, rows)

    def close(self) -> None:
        """As in sqlite3."""
        self.is_closed = True
        super().close()

    def __enter__(self) -> Self:
        self.check_open()
        return super().__enter__()

    def check_open(self) -> None:
        """Raise where it was closed."""
        if self.is_closed:
            raise FileError(f"{self.path}: the run is closed; open it again to go on, or to read it")


class _Cursor(sqlite3.Cursor):
    def execute(self, sql: str, values: Any = (), /) -> Self:
        try:
            return super().execute(sql, values)
        except UNSOUND as error:
            raise self._tell_damage(error) from None

    def executemany(self, sql: str, rows: Iterable[Any], /) -> Self:
        try:
            return super().executemany(sql, rows)
        except UNSOUND as error:
            raise self._tell_damage(error) from None

    def fetchone(self) -> Any:
        return next(self, None)

    def fetchall(self) -> list[Any]:
        return list(self)

    def __next__(self) -> Any:
        try:
            return super().__next__()
        except UNSOUND as error:
            raise self._tell_damage(error) from None

    def _tell_damage(self, error: Exception) -> Exception:
        """What to raise instead: another error than that of a damaged file stays as it is."""
        code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR)
        is_damage = not isinstance(error, sqlite3.IntegrityError) and {code, code & 0xFF} & UNREADABLE
        assert isinstance(self.connection, JournalDatabase), "made by one"
        return _make_damage_error(self.connection.path, error) if is_damage else error


@contextmanager
def report_damage(path: Path) -> Iterator[None]:
    """Say that a journal is damaged where a value in it is not what it should be."""
    try:
        yield
    except GroupwiseError:
        raise
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError) as error:
        raise _make_damage_error(path, error) from None


def name_cells(names: Sequence[str], row: Sequence[Any]) -> dict[str, Any]:
    """A row by the names of its columns; TypeError where a cell holds what its column never does.

    SQLite keeps any value in any column, so that a damaged or forged journal may hold text where a number belongs.
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
    """Open a journal to write; what a new one needs is made."""
    # SQLite's log for readers beside a writer is memory that processes share: those of one machine, not of several.
    is_shared = find_file_system(path.parent).is_shared
    database = _open(str(path), path, uri=False, timeout=MAX_SHARED_WAIT if is_shared else MAX_WAIT)
    try:
        check_schema(database, path)  # before a file of another schema is touched
        database.execute(f"PRAGMA journal_mode = {'DELETE' if is_shared else 'WAL'}")
        database.executescript(TABLES)
        database.execute("INSERT OR IGNORE INTO about VALUES ('schema', ?)", (str(SCHEMA),))
    except Exception:
        database.close()
        raise
    return database


def check_schema(database: JournalDatabase, path: Path) -> None:
    """Refuse a journal that another version wrote in another way; one that was never begun says nothing yet."""
    if not database.execute("SELECT 1 FROM sqlite_master WHERE name = 'about'").fetchone():
        return
    row = database.execute("SELECT value FROM about WHERE key = 'schema'").fetchone()
    if row is not None and row[0] != str(SCHEMA):
        raise FileError(
            f"{path}: the journal has schema {quote_line(str(row[0]), limit=20)}, this version reads {SCHEMA}; use "
            "the version that wrote it"
        )


def connect_to_read(path: Path) -> JournalDatabase:
    """Open within one transaction, so that whatever is asked is answered from the same updates.

    A journal that several machines may see is without SQLite's log: there a transaction would keep its writer waiting,
    and each question is answered from the updates of its moment.
    """
    try:
        database = _snapshot(f"{path.absolute().as_uri()}?mode=ro", path)
    except sqlite3.OperationalError:
        # To read beside a writer, SQLite needs files of its own next to the journal, which it cannot make in a folder
        # that is read-only. There a journal without a log is complete, and one with a log is not.
        log, _, before = _logs(path)
        if _holds_something(log):
            raise FileError(
                f"{path}: its last updates stand in {log.name}, which cannot be read in a read-only folder; copy the "
                "folder to where you may write, and give the copy"
            ) from None
        if _holds_something(before):
            raise FileError(
                f"{path}: the run was killed while it wrote an update, and {before.name} holds what stood there; "
                "`groupwise train --resume` puts it back and goes on"
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
    """What SQLite finds wrong with the pages of a file; None where it finds nothing."""
    try:
        row = database.execute("PRAGMA quick_check(1)").fetchone()
    except FileError as error:
        return str(error)
    return None if row is None or row[0] == "ok" else str(row[0])


def rewrite_up_to(database: JournalDatabase, number: int) -> JournalDatabase:
    """Put a new file with the updates up to a number in the place of a damaged one, which is kept beside it.

    Evaluations, alarms and changes of settings that cannot be read are left out; a run makes the evaluations again that
    it needs.
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
        for table in BY_UPDATE:
            if table not in BESIDE_UPDATES:
                for update in range(1, number + 1):  # one by one, as they were found to be sound
                    rows = database.execute(f"SELECT * FROM {table} WHERE number = ?", (update,)).fetchall()
                    _copy(copy, table, rows)
        for update in range(number + 1):  # as far as it can be read: whoever goes on compares its digest
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
    # The log must not stay: SQLite would take it for the new file's.
    for there, here in zip((path, *_logs(path)), (kept, *_logs(kept)), strict=True):
        here.unlink(missing_ok=True)
        if there.exists():
            there.rename(here)
    draft.rename(path)
    return connect(path)


def _logs(path: Path) -> tuple[Path, Path, Path]:
    """The files that SQLite keeps beside one: what is new and where that stands or, without these, what was before."""
    new, index, before = (path.with_name(f"{path.name}-{name}") for name in ("wal", "shm", "journal"))
    return new, index, before


def _holds_something(path: Path) -> bool:
    return path.exists() and path.stat().st_size > 0


def _copy(target: JournalDatabase, table: str, rows: Sequence[Sequence[Any]]) -> None:
    """Write rows of one file into a table of another."""
    if rows:
        target.executemany(f"INSERT INTO {table} VALUES ({', '.join('?' * len(rows[0]))})", rows)


# Values as small blobs: compressed JSON, which keeps every digit of a number.

_LEAVES = frozenset({str, int, float, bool, type(None)})


def pack_blob(value: object) -> bytes:
    """A JSON value as a blob; TypeError for what is none, such as a set, which has no order to come back in."""
    try:
        written = to_json(value, inf_nan_mode="constants")  # several times as fast as json.dumps
    except PydanticSerializationError as error:  # half of a character, nesting without end
        raise TypeError(f"no form in JSON: {error}") from None
    holders: list[Any] = [[value]]
    for holder in holders:  # grows while it is walked
        if isinstance(holder, dict):
            if not {str}.issuperset(map(type, holder)):
                strange = next(key for key in holder if type(key) is not str)
                raise TypeError(f"JSON names are text, but an object has {strange!r}")
            holder = holder.values()
        if _LEAVES.issuperset(map(type, holder)):  # long lists are of numbers alone
            continue
        for entry in holder:
            if isinstance(entry, dict | list | tuple):
                holders.append(entry)
            elif not isinstance(entry, str | int | float | None):
                raise TypeError(f"a {type(entry).__module__}.{type(entry).__name__} has no form in JSON")
    return zlib.compress(written, 1)


def unpack_blob(blob: bytes) -> Any:
    """The value of a blob; tuples come back as lists. ValueError for what no value was packed into."""
    try:
        return json.loads(zlib.decompress(blob))
    except zlib.error as error:
        raise ValueError(f"a blob cannot be unpacked: {error}") from None


# The updates of a journal as a chain of digests: each over the one before it and over what was written for the update.
#
# A checkpoint holds the chain's end. A journal that lacks an update, holds another one, or one of whose rows was
# changed does not lead there, so that a run never goes on beside a past that is not its own. Left out is what the clock
# says and how servers shared the work, which differ between two runs of the same seed, and the evaluations, which
# nothing learns from.

START = hashlib.sha256(b"groupwise journal").hexdigest()
"""The chain before the first update."""
LINKED = (
    "SELECT number, version FROM updates WHERE number = ?",
    "SELECT name, value FROM metrics WHERE number = ? AND name NOT GLOB 'seconds/*' AND name NOT GLOB 'speed/*' "
    "AND name NOT GLOB 'replicas/*' ORDER BY name",
    "SELECT task, attempt, stop, outcome, success, origin, error, steps, credit, parent FROM trajectories "
    "WHERE number = ? ORDER BY task, attempt",
    "SELECT task, attempt, stop, steps, error FROM faults WHERE number = ? ORDER BY task, attempt",
    "SELECT task, attempt, version, origin, score, credit, states, rewards FROM history WHERE number = ? "
    "ORDER BY task, attempt",
    "SELECT task, attempt, from_task, from_number, from_attempt, why, log_ratio, keeps_credit, credit FROM recalled "
    "WHERE number = ? ORDER BY task, attempt",
    "SELECT task, attempt, stop, outcome, success, origin, set_aside_by, steps FROM set_aside WHERE number = ? "
    "ORDER BY task, attempt",
    "SELECT task, attempt, words FROM asked_for WHERE number = ? ORDER BY task, attempt",
    "SELECT path, kind, state, columns FROM part_states WHERE number = ? ORDER BY path",
)
"""What a link is made of. Columns are named: one that a later version adds must not change the digests of old rows."""


@dataclass(frozen=True, kw_only=True)
class DigestChain:
    """How far a journal is as it was written."""

    digests: tuple[str, ...]
    """The chain after each sound update; first, before any of them."""
    fault: str | None
    """What is wrong after those, in words; None where nothing is."""

    def leads_to(self, number: int, digest: object) -> bool:
        """Whether the journal is sound up to an update, and a digest is that of the chain there."""
        return 0 <= number < len(self.digests) and self.digests[number] == digest


def digest_update(database: JournalDatabase, number: int, previous: str) -> str:
    """The digest after an update, from the rows as they stand in the file."""
    digest = hashlib.sha256(previous.encode())
    for query in LINKED:
        digest.update(b"\0")
        for row in database.execute(query, (number,)):
            # The bytes of a blob by themselves: written out as text they would cost several times the digest.
            blobs = [value for value in row if isinstance(value, bytes)]
            plain = [(len(value),) if isinstance(value, bytes) else value for value in row] if blobs else list(row)
            digest.update(repr(plain).encode() + b"".join(blobs))
    return digest.hexdigest()


def check_digest_chain(database: JournalDatabase, last: int | None = None) -> DigestChain:
    """Derive the chain again from the rows of the updates 1 to `last`, or of all, as far as they are sound."""
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
