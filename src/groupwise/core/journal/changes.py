"""Settings that changed when a run went on, as the journal keeps them: which, after which update, from what to what."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from groupwise.core.journal.file import JournalDatabase


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


def write_changes(database: JournalDatabase, number: int, changes: Sequence[SettingChange]) -> None:
    """Write all that changed after an update, in the place of what was written for it before."""
    database.execute("DELETE FROM changes WHERE number = ?", (number,))
    database.executemany(
        "INSERT INTO changes (number, path, before, after) VALUES (?, ?, ?, ?)",
        [(number, change.path, json.dumps(change.before), json.dumps(change.after)) for change in changes],
    )


def read_changes(database: JournalDatabase) -> list[SettingChange]:
    """Every change, by update and path; TypeError or ValueError where a row is none."""
    changes = []
    for number, path, before, after in database.execute(
        "SELECT number, path, before, after FROM changes ORDER BY number, path"
    ):
        if type(number) is not int or not isinstance(path, str):
            raise TypeError(f"a row of the changes is for {path!r} after update {number!r}")
        changes.append(SettingChange(number=number, path=path, before=json.loads(before), after=json.loads(after)))
    return changes
