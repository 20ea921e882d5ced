"""The updates of a journal as a chain of digests: each over the one before it and over what was written for the update.

A checkpoint holds the chain's end. A journal that lacks an update, holds another one, or one of whose rows was changed
does not lead there, so that a run never goes on beside a past that is not its own. Left out is what the clock says
and how servers shared the work, which differ between two runs of the same seed, and the evaluations, which nothing
learns from.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from groupwise.core.errors import FileError
from groupwise.core.journal.file import JournalDatabase

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
)
"""What a link is made of. Columns are named: one that a later version adds must not change the digests of old rows."""
LINKED_WHERE_ANY = {
    "set_aside": "SELECT task, attempt, stop, outcome, success, origin, set_aside_by, steps FROM set_aside "
    "WHERE number = ? ORDER BY task, attempt",
    "asked_for": "SELECT task, attempt, words FROM asked_for WHERE number = ? ORDER BY task, attempt",
    "part_states": "SELECT path, kind, state, columns FROM part_states WHERE number = ? ORDER BY path",
}
"""Tables that came later, by name: an update without rows in them has the digest that it had before there were any."""


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
            _add_row(digest, row)
    for table, query in LINKED_WHERE_ANY.items():
        there_is = database.execute("SELECT 1 FROM sqlite_master WHERE name = ?", (table,)).fetchone()
        for place, row in enumerate(database.execute(query, (number,)) if there_is else ()):
            if not place:
                digest.update(f"\0{table}".encode())
            _add_row(digest, row)
    return digest.hexdigest()


def _add_row(digest: hashlib._Hash, row: Sequence[Any]) -> None:
    # The bytes of a blob by themselves: written out as text they would cost several times the digest.
    plain = [(len(value),) if isinstance(value, bytes) else value for value in row]
    digest.update(repr(plain).encode())
    for value in row:
        if isinstance(value, bytes):
            digest.update(value)


def check_digest_chain(database: JournalDatabase, last: int | None = None) -> DigestChain:
    """Derive the chain again from the rows of the updates 1 to `last`, or of all, as far as they are sound."""
    digests, fault = [START], None
    try:
        while fault is None and (last is None or len(digests) <= last):
            stored = _read_digest(database, len(digests))
            if stored is None and last is None and not _has_after(database, len(digests)):
                break
            fault = _find_fault(database, len(digests), digests[-1], stored)
            digests += [] if fault or stored is None else [stored]
    except FileError:
        fault = f"update {len(digests)} cannot be read"
    return DigestChain(digests=tuple(digests), fault=fault)


def _find_fault(database: JournalDatabase, number: int, previous: str, stored: str | None) -> str | None:
    """What is wrong with an update, in words."""
    if stored is None:
        return f"update {number} is missing"
    if not stored:
        return f"update {number} was written by a version without digests"
    if digest_update(database, number, previous) != stored:
        return f"update {number} is not as it was written"
    return None


def _read_digest(database: JournalDatabase, number: int) -> str | None:
    """The digest that stands with an update; empty where none does, None where there is no such update."""
    row = database.execute("SELECT digest FROM updates WHERE number = ?", (number,)).fetchone()
    return None if row is None else str(row[0] or "")


def _has_after(database: JournalDatabase, number: int) -> bool:
    return database.execute("SELECT 1 FROM updates WHERE number > ? LIMIT 1", (number,)).fetchone() is not None
