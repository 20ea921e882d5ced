"""Alarms of a run, as the journal keeps them: which one was raised after which update, and what it said."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple, dataclass, fields

from groupwise.core.journal.file import JournalDatabase


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


NAMES = ", ".join(field.name for field in fields(Alarm))


def write_alarms(database: JournalDatabase, alarms: Sequence[Alarm]) -> None:
    """Write alarms, in a transaction of their own; one that stands there already is written over."""
    database.executemany(
        f"INSERT OR REPLACE INTO alarms ({NAMES}) VALUES (?, ?, ?, ?)", [astuple(alarm) for alarm in alarms]
    )


def read_alarms(database: JournalDatabase) -> list[Alarm]:
    """Every alarm, by update and name; TypeError where a row is none."""
    alarms = [
        Alarm(number=number, name=name, action=action, sentence=sentence)
        for number, name, action, sentence in database.execute(f"SELECT {NAMES} FROM alarms ORDER BY number, name")
    ]
    for alarm in alarms:
        if type(alarm.number) is not int or not all(
            isinstance(text, str) for text in (alarm.name, alarm.action, alarm.sentence)
        ):
            raise TypeError(f"a row of the alarms is {alarm!r}")
    return alarms
