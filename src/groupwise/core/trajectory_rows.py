"""Trajectories as rows, one a step, and the steps of rows again: the table of step fields, written out both ways."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import MISSING, fields
from typing import Any

from groupwise.core.records import Step, Trajectory
from groupwise.core.step_fields.code import compile_function
from groupwise.core.step_fields.field import KEPT, ON_STEP, StepField
from groupwise.core.step_fields.table import STEP_FIELDS

Spans = tuple[tuple[int, int], ...]


def make_rows(trajectory: Trajectory) -> Iterator[dict[str, Any]]:
    """The rows of one attempt.

    They hold what credit reads, with the tokens; the task's payload, the scores by name but for `accuracy`, the parent
    and the error stay with the trajectory. An attempt without steps has no rows.
    """
    for step in trajectory.steps:
        yield _write_row(trajectory, step)


def _order_fields(step_fields: Sequence[StepField]) -> list[StepField]:
    """Put the fields that attempts say into the order of journals: first what every row has, then what some have."""
    ordered = sorted(step_fields, key=lambda field: field.absent is not KEPT)
    for field in [field for field in ordered if field.follows]:
        ordered.remove(field)
        place = next(place for place, other in enumerate(ordered) if other.name == field.follows)
        ordered.insert(place + 1, field)
    return ordered


def _make_row_writer() -> Callable[[Trajectory, Step], dict[str, Any]]:
    """Make the function that writes a row: a dict of what every row has, then a line or two for each further field."""
    recorded = [field for field in STEP_FIELDS if field.step or field.trajectory or field.make]
    known: dict[str, Any] = {}
    always, more = "", ""
    for field in _order_fields(recorded):
        known |= {f"make_{field.name}": field.make, f"absent_{field.name}": field.absent}
        value = f"step.{field.step}" if field.step else f"trajectory.{field.trajectory}"
        value = f"make_{field.name}(trajectory, step)" if field.make else value
        if field.absent is KEPT:
            always += f"{field.name!r}: {value}, "
        else:
            differs = "is not None" if field.absent is None else f"!= absent_{field.name}"
            more += f"value = {value}\nif value {differs}: row[{field.name!r}] = value\n"
    return compile_function("trajectory, step", f"row = {{{always}}}\n{more}return row", known)


def _make_step_reader() -> Callable[[Mapping[str, Any], Spans], Step]:
    """Make the function that reads a step: a call of `Step`; of fields that fill the same one, the last there is."""
    known: dict[str, Any] = {"Step": Step}
    values: dict[str, str] = {}
    entries = {entry.name: entry for entry in fields(Step)}
    for field in STEP_FIELDS:
        if not field.step:
            continue
        entry = entries[field.step]
        is_made = field.unknown is ON_STEP and entry.default is MISSING
        default = entry.default_factory if is_made else entry.default
        unknown = default if field.unknown is ON_STEP else field.unknown
        known |= {f"read_{field.name}": field.kind.read, f"unknown_{field.name}": unknown}
        value = f"row[{field.name!r}]" if field.kind.read is None else f"read_{field.name}(row[{field.name!r}])"
        otherwise = values.get(field.step, f"unknown_{field.name}{'()' if is_made else ''}")
        values[field.step] = value if field.required else f"({value} if {field.name!r} in row else {otherwise})"
    arguments = ", ".join(f"{name}={value}" for name, value in values.items())
    return compile_function("row, versions", f"return Step({arguments}, versions=versions)", known)


_write_row = _make_row_writer()

read_step = _make_step_reader()
"""The step of a row, and of its spans of versions, as it was sampled: with the reward that it had by itself."""
