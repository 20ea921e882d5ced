"""Evaluations of a run, as the journal keeps them: a row an attempt."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple, dataclass, fields

from groupwise.core.journal.file import JournalDatabase, name_cells


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
    """How many tokens it sampled; None in a journal that was written before they were counted."""


NAMES = [field.name for field in fields(EvaluatedAttempt)]


def write_evaluations(database: JournalDatabase, attempts: Sequence[EvaluatedAttempt]) -> None:
    """Write the attempts of evaluations, in a transaction of the caller's; those of an update and a split go before."""
    database.executemany(
        "DELETE FROM evaluations WHERE number = ? AND split = ?",
        {(attempt.number, attempt.split) for attempt in attempts},
    )
    database.executemany(
        f"INSERT INTO evaluations ({', '.join(NAMES)}) VALUES ({', '.join('?' * len(NAMES))})",
        [astuple(attempt) for attempt in attempts],
    )


def read_evaluations(database: JournalDatabase, number: int | None = None) -> list[EvaluatedAttempt]:
    """The attempts of the evaluations after an update (None = of all), by update, split, seed and task."""
    which, values = ("", ()) if number is None else ("WHERE number = ? ", (number,))
    order = "ORDER BY number, split, seed, task, attempt"
    cursor = database.execute(f"SELECT * FROM evaluations {which}{order}", values)
    names = [column[0] for column in cursor.description]
    return [EvaluatedAttempt(**name_cells(names, row)) for row in cursor]
