"""Steps as the columns of a step table, from trajectories or from the rows of a journal.

Both use the table of step fields. So advantages computed again from a journal read the same columns.
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
    """The columns of a step table, one row per step.

    Several trajectories can be one rollout: same task, same rollout number, indices that continue. A rollout without
    steps has no row, so it is in no statistic. Final scores must be given for all trajectories or for none, because a
    sum of rewards is on another scale. `accuracy`, `well_formed` and `accepted` become columns if all steps have them.
    `version` is the policy version that is about to learn. With it, the column `age` is the staleness of each rollout's
    oldest weights, if every trajectory has its versions (not every engine reports them).
    """
    steps, owners = list[Step](), list[Trajectory]()
    for trajectory in trajectories:
        steps += trajectory.steps
        owners += [trajectory] * len(trajectory.steps)
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
        ages: list[int] = []
        for trajectory in trajectories:
            if trajectory.steps:
                age = version - min(trajectory.versions)
                if age < 0:
                    raise RecordError(
                        f"trajectory {trajectory.id!r} was sampled by version {min(trajectory.versions)}, but "
                        f"`version` is {version}, which is older; pass the version of the learner"
                    )
                ages += [age] * len(trajectory.steps)
        columns["age"] = ages
    _add_info(columns, list(map(attrgetter("info"), steps)))
    outcomes = list(map(attrgetter("outcome"), trajectories))
    if any(map(is_not, outcomes, repeat(None))):
        without = [trajectory.id for trajectory in trajectories if trajectory.outcome is None]
        if without:
            raise RecordError(
                f"trajectory {without[0]!r} has no outcome while others have one; set it on all or on none"
            )
        columns["outcome"] = [trajectory.outcome for trajectory in owners]
    return columns


def lay_out_rows(rows: Sequence[Mapping[str, Any]], *, version: int | None = None) -> Columns:
    """The columns of the rows of a journal, the same as those of their trajectories.

    `version` is the policy version that learned. States become canonical text, because JSON turned tuples into lists.
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
    _add_info(columns, [row.get("extra", {}) for row in rows])
    if any("outcome" in row for row in rows):
        columns["outcome"] = [row.get("outcome") for row in rows]
    return columns


def _add_column(columns: Columns, field: StepField, values: list[Any]) -> None:
    assert field.column is not None, "only columns are laid out"
    presence = field.column.presence
    if presence is Presence.WHERE_ALL:
        is_there = None not in values
    # Rows from before a field existed have no value for it, and a checked column accepts no None.
    elif presence is Presence.ALWAYS and (field.column.check is Check.ANYTHING or not values):
        is_there = True
    else:
        is_there = any(map(is_not, values, repeat(None)))
    if is_there:
        columns[field.name] = values


def _add_valid(columns: Columns, verdicts: list[bool | None]) -> None:
    """Add the column `valid` if `well_formed` or `accepted` is missing and every step has a result for both together.

    No default is used for a step without a result. If both columns exist, the table computes `valid` from them.
    """
    if not ("well_formed" in columns and "accepted" in columns) and None not in verdicts:
        columns["valid"] = verdicts


def _add_info(columns: Columns, info: Sequence[Mapping[str, Any]]) -> None:
    """One column per name of step info; None for steps without it."""
    if any(info):
        names = dict.fromkeys(name for known in info for name in known)
        if not RESERVED_NAMES.isdisjoint(names):
            name = next(name for name in names if name in RESERVED_NAMES)
            row = next(row for row, known in enumerate(info) if name in known)
            where = ", ".join(f"{key} {columns[key][row]!r}" for key in ("task", "rollout", "step"))
            raise RecordError(f"{where}: the info key {name!r} is the name of a column; rename it", row=row)
        columns |= {name: [known.get(name) for known in info] for name in names}


def _compute_ages(rows: Sequence[Mapping[str, Any]], version: int) -> list[Any]:
    """The staleness of the oldest weights that sampled each row's rollout."""
    oldest: dict[tuple[Any, Any], int] = {}
    for row in rows:
        rollout, oldest_of_row = (row["task"], row["rollout"]), min(row.get("versions") or (row["version"],))
        oldest[rollout] = min(oldest_of_row, oldest.get(rollout, oldest_of_row))
    return [version - oldest[row["task"], row["rollout"]] for row in rows]


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


# Trajectories as rows, one per step, and rows as steps again; both are made from the table of step fields.

Spans = tuple[tuple[int, int], ...]


def _order_fields(step_fields: Sequence[StepField]) -> list[StepField]:
    """The order of fields in journals: first those that every row has, then the others."""
    ordered = sorted(step_fields, key=lambda field: field.absent is not KEPT)
    for field in [field for field in ordered if field.follows]:
        ordered.remove(field)
        place = next(place for place, other in enumerate(ordered) if other.name == field.follows)
        ordered.insert(place + 1, field)
    return ordered


def _make_row_writer() -> Callable[[Trajectory], list[dict[str, Any]]]:
    """Make the function that writes rows: a dict of the fields that every row has, then two lines per further field."""
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
    """Make the function that reads a step: a call of `Step`. If several fields of a row fill one, the last wins."""
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
"""The rows of one rollout, one per step.

They have the tokens and all fields that advantages are computed from. The task's payload, the scores except `accuracy`,
the parent and the error stay with the trajectory. A rollout without steps has no rows.
"""

read_step = _make_step_reader()
"""The step of a row and of its version spans, as it was sampled: with the reward before group reward shaping."""
