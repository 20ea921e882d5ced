"""Steps as the columns of a step table: from the trajectories that hold them, or from the rows written of them.

Both ways go through the table of step fields, so that credit computed again from a journal reads what it read before.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, fields
from itertools import repeat
from operator import attrgetter, is_not
from typing import Any

from groupwise.data.field_kinds import KEPT, ON_STEP, STATE, Check, Presence, StepField
from groupwise.data.records import SAMPLED_ELSEWHERE, Step, Trajectory, check_steps, list_valid
from groupwise.data.step_fields import RESERVED_NAMES, STEP_FIELDS, compile_function
from groupwise.system.errors import RecordError
from groupwise.system.json_text import to_canonical_json

Columns = dict[str, list[Any]]


def lay_out_trajectories(trajectories: Sequence[Trajectory], *, version: int | None = None) -> Columns:
    """Lay trajectories out as the columns of a step table, one row a step.

    An attempt whose record was cut into several trajectories (same task, same attempt, indices that go on) is one
    attempt. An attempt without steps has no row, and so leaves every statistic. Outcomes are given for all
    trajectories or for none: a sum of rewards beside a score would be two scales. `accuracy` is the score of that name,
    where all have it, and so are `well_formed` and `accepted`. With the `version` of the weights that are about to
    learn, `age` says how many versions older the oldest weights are that sampled the attempt, where every attempt says
    which versions these were: not every engine does.
    """
    steps = [step for trajectory in trajectories for step in trajectory.steps]
    owners = [trajectory for trajectory in trajectories for _ in trajectory.steps]
    check_steps(steps)
    columns: Columns = {}
    for field, lay_out in _FROM_TRAJECTORIES:
        _add_column(columns, field, lay_out(owners, steps))
    _add_valid(columns, list_valid(steps))
    if any(map(attrgetter("response_ids"), steps)):
        columns["tokens"] = [len(step.response_ids) - step.forced for step in steps]
    if any(map(attrgetter("off_policy"), trajectories)):
        columns["off_policy"] = [trajectory.off_policy for trajectory in owners]
    if version is not None and all(map(attrgetter("versions"), owners)):
        ages = [version - min(trajectory.versions) for trajectory in trajectories if trajectory.steps]
        if min(ages, default=0) < 0:
            newer = next(trajectory for trajectory in trajectories if min(trajectory.versions, default=0) > version)
            raise RecordError(
                f"trajectory {newer.id!r} was sampled by version {min(newer.versions)}, but the weights that are "
                f"about to learn are version {version}; hand in the version of the learner"
            )
        lengths = [len(trajectory.steps) for trajectory in trajectories if trajectory.steps]
        columns["age"] = [age for age, length in zip(ages, lengths, strict=True) for _ in range(length)]
    _add_facts(columns, [step.facts for step in steps])
    without = [trajectory.id for trajectory in trajectories if trajectory.outcome is None]
    if len(without) < len(trajectories):
        if without:
            raise RecordError(
                f"trajectory {without[0]!r} has no outcome while others have one; set it on all or on none"
            )
        columns["outcome"] = [trajectory.outcome for trajectory in owners]
    return columns


def lay_out_rows(rows: Sequence[Mapping[str, Any]], *, version: int | None = None) -> Columns:
    """Lay rows of a journal out as the columns that their trajectories gave.

    `version` is that of the weights that learnt. States are their canonical texts, since lists have come of tuples.
    """
    columns: Columns = {}
    for field in _FROM_ROWS:
        values = [row.get(field.name) for row in rows]
        if field.kind is STATE:
            values = [to_canonical_json(state) if isinstance(state, list | dict) else state for state in values]
        _add_column(columns, field, values)
    verdicts = [tuple(map(row.get, ("well_formed", "accepted", "valid"))) for row in rows]
    _add_valid(columns, [both if None in pair else all(pair) for *pair, both in verdicts])
    if any(row.get("response_ids") for row in rows):
        columns["tokens"] = [len(row["response_ids"]) - row.get("forced", 0) for row in rows]
    elsewhere: list[Any] = [row.get("origin") in SAMPLED_ELSEWHERE for row in rows]
    if any(elsewhere):
        columns["off_policy"] = elsewhere
    if version is not None and all("version" in row or "versions" in row for row in rows):
        columns["age"] = _compute_ages(rows, version)
    _add_facts(columns, [row.get("extra", {}) for row in rows])
    if any("outcome" in row for row in rows):
        columns["outcome"] = [row.get("outcome") for row in rows]
    return columns


def _add_column(columns: Columns, field: StepField, values: list[Any]) -> None:
    """Give the table the column of a field, where it gets one."""
    assert field.column is not None, "only columns are laid out"
    presence = field.column.presence
    if presence is Presence.WHERE_ALL:
        is_there = None not in values
    # Rows of before a field was written say nothing of it, and a column that is checked takes no None.
    elif presence is Presence.ALWAYS and (field.column.check is Check.ANYTHING or not values):
        is_there = True
    else:
        is_there = any(map(is_not, values, repeat(None)))
    if is_there:
        columns[field.name] = values


def _add_valid(columns: Columns, verdicts: list[bool | None]) -> None:
    """Where some step does not say apart whether it was well formed and accepted: what all say for both together.

    A step that does not say makes its column unknown: a default would be an invented verdict. Where both columns are
    there, a table makes this one of them by itself.
    """
    if not ("well_formed" in columns and "accepted" in columns) and None not in verdicts:
        columns["valid"] = verdicts


def _add_facts(columns: Columns, facts: Sequence[Mapping[str, Any]]) -> None:
    """A column for everything that was found out about some step; None where another does not have it."""
    if any(facts):
        names = dict.fromkeys(name for known in facts for name in known)
        if not RESERVED_NAMES.isdisjoint(names):
            name = next(name for name in names if name in RESERVED_NAMES)
            row = next(row for row, known in enumerate(facts) if name in known)
            where = ", ".join(f"{key} {columns[key][row]!r}" for key in ("task", "attempt", "index"))
            raise RecordError(f"{where}: the fact {name!r} has a name that is taken; call it something else", row=row)
        columns |= {name: [known.get(name) for known in facts] for name in names}


def _compute_ages(rows: Sequence[Mapping[str, Any]], version: int) -> list[Any]:
    """How many versions older the oldest weights are that sampled each row's attempt."""
    oldest: dict[tuple[Any, Any], int] = {}
    for row in rows:
        attempt, oldest_of_row = (row["task"], row["attempt"]), min(row.get("versions") or (row["version"],))
        oldest[attempt] = min(oldest_of_row, oldest.get(attempt, oldest_of_row))
    return [version - oldest[row["task"], row["attempt"]] for row in rows]


_LAID_OUT = [field for field in STEP_FIELDS if field.column and field.column.presence is not Presence.BY_ITSELF]
_FROM_ROWS = [field for field in _LAID_OUT if field.in_rows]
_FROM_TRAJECTORIES: list[tuple[StepField, Callable[[Sequence[Trajectory], Sequence[Step]], list[Any]]]] = [
    (
        field,
        compile_function("owners, steps", f"return [{field.expression} for trajectory, step in zip(owners, steps)]"),
    )
    for field in _LAID_OUT
    if field.is_recorded
]


# Trajectories as rows, one a step, and the steps of rows again: the table of step fields, written out both ways.

Spans = tuple[tuple[int, int], ...]


def _order_fields(step_fields: Sequence[StepField]) -> list[StepField]:
    """Put the fields that attempts say into the order of journals: first what every row has, then what some have."""
    ordered = sorted(step_fields, key=lambda field: field.absent is not KEPT)
    for field in [field for field in ordered if field.follows]:
        ordered.remove(field)
        place = next(place for place, other in enumerate(ordered) if other.name == field.follows)
        ordered.insert(place + 1, field)
    return ordered


def _make_row_writer() -> Callable[[Trajectory], list[dict[str, Any]]]:
    """Make the function that writes rows: a dict of what every row has, then a line or two for each further field."""
    known: dict[str, Any] = {}
    always, more = "", ""
    for field in _order_fields([field for field in STEP_FIELDS if field.is_recorded]):
        if field.absent is KEPT:
            always += f"{field.name!r}: {field.expression}, "
            continue
        known[f"absent_{field.name}"] = field.absent
        differs = "is not None" if field.absent is None else f"!= absent_{field.name}"
        more += f"    value = {field.expression}\n    if value {differs}: row[{field.name!r}] = value\n"
    body = f"rows = []\nfor step in trajectory.steps:\n    row = {{{always}}}\n{more}    rows.append(row)\nreturn rows"
    return compile_function("trajectory", body, known)


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


make_rows = _make_row_writer()
"""The rows of one attempt, one a step.

They hold what credit reads, with the tokens; the task's payload, the scores by name but for `accuracy`, the parent and
the error stay with the trajectory. An attempt without steps has no rows.
"""

read_step = _make_step_reader()
"""The step of a row, and of its spans of versions, as it was sampled: with the reward that it had by itself."""
