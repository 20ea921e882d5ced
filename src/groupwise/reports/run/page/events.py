"""What happened on the way: alarms that were raised, and settings that changed when the run went on."""

from __future__ import annotations

from groupwise.core.text.safe_text import quote_line
from groupwise.reports.run.page.markup import Html, tag
from groupwise.reports.run.page.sections import make_section
from groupwise.reports.run.run_folder import RunFolder

MAX_VALUE = 60
"""Characters of a setting's value that are shown."""


def write_events_section(folder: RunFolder) -> Html | None:
    """Alarms and changed settings, by update; None where there were none."""
    alarms = [
        (alarm.number, "stopped by" if alarm.action == "stop" else "alarm", alarm.name, f"{alarm.sentence}.")
        for alarm in folder.journal.alarms()
    ]
    changes = [
        (change.number, "changed", change.path, f"was {_show(change.before)}, is {_show(change.after)}.")
        for change in folder.journal.changes()
    ]
    events = sorted([*alarms, *changes], key=lambda event: event[0])
    if not events:
        return None
    lines = [
        tag("li", f"After update {number}, {kind} ", tag("code", name), f": {words}")
        for number, kind, name, words in events
    ]
    lead = "Alarms that were raised, and settings that are others from the next update on."
    return make_section("events", "On the way", tag("ul", lines, class_="events"), lead=lead)


def _show(value: object) -> str:
    return "not set" if value is None else quote_line(str(value), limit=MAX_VALUE)
