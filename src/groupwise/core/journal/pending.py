"""Attempts that were played ahead, for an update that is still to be made, as the journal keeps them.

They are written with the update during which they were played, in its transaction, so that a run that goes on from
there need not play them again, with weights that nobody has any more. They stay as long as a run may go on from there:
for the newest update, and for those that have a checkpoint. They are no part of the chain of digests, since the update
that learns from them writes them down again; a digest of their own stands in the checkpoint.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from groupwise.core.journal.file import PENDING_TABLE, JournalDatabase, has_pending

CLOCK = -1
"""The place of what the clock said, which differs between two runs of the same seed and is in no digest."""


@dataclass(frozen=True, kw_only=True)
class PendingAttempts:
    """The attempts for one update that is still to be made, as blobs."""

    contents: Sequence[bytes]
    """All that two runs of the same seed have alike."""
    clock: bytes
    """What playing them took."""


def write_pending(
    database: JournalDatabase,
    number: int,
    pending: Mapping[int, PendingAttempts],
    *,
    checkpoints: Collection[int],
) -> None:
    """Write what was played ahead during an update, within its transaction; what nobody can go on from goes."""
    if pending:
        database.execute(PENDING_TABLE)
    elif not has_pending(database):
        return
    database.executemany(
        "INSERT INTO pending VALUES (?, ?, ?, ?)",
        [
            (number, following, place, content)
            for following, attempts in pending.items()
            for place, content in enumerate([attempts.clock, *attempts.contents], start=CLOCK)
        ],
    )
    earlier = database.execute("SELECT DISTINCT number FROM pending WHERE number < ?", (number,)).fetchall()
    database.executemany(
        "DELETE FROM pending WHERE number = ?", [(before,) for (before,) in earlier if before not in checkpoints]
    )


def read_pending(database: JournalDatabase, number: int) -> dict[int, PendingAttempts]:
    """What was played ahead during an update, by the update that it is for; TypeError where a row is none of those."""
    if not has_pending(database):
        return {}
    contents: dict[int, list[bytes]] = {}
    rows = database.execute(
        "SELECT following, content FROM pending WHERE number = ? ORDER BY following, place", (number,)
    )
    for following, content in rows:
        if type(following) is not int or not isinstance(content, bytes):
            raise TypeError(f"a row of what is pending is for update {following!r}")
        contents.setdefault(following, []).append(content)
    return {following: PendingAttempts(clock=clock, contents=rest) for following, (clock, *rest) in contents.items()}


def list_pending(database: JournalDatabase, number: int) -> list[int]:
    """The updates that something was played ahead for while an update was learnt."""
    if not has_pending(database):
        return []
    query = "SELECT DISTINCT following FROM pending WHERE number = ? ORDER BY following"
    return [int(following) for (following,) in database.execute(query, (number,))]


def digest_pending(database: JournalDatabase, number: int) -> str | None:
    """The digest of what was played ahead during an update, from the rows as they stand; None where there are none."""
    if not has_pending(database):
        return None
    rows = database.execute(
        "SELECT following, place, content FROM pending WHERE number = ? AND place > ? ORDER BY following, place",
        (number, CLOCK),
    ).fetchall()
    digest = hashlib.sha256(b"groupwise pending")
    for following, place, content in rows:
        is_blob = isinstance(content, bytes)
        digest.update(f"\0{following} {place} {len(content) if is_blob else repr(content)}\0".encode())
        digest.update(content if is_blob else b"")
    return digest.hexdigest() if rows else None
