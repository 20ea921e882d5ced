"""Stateful parts: how one is started, what it hears once an update, and how others read what it remembers.

A part stays a frozen model. What it remembers lives in a state that the run keeps for it, under the part's path in the
settings (`algorithm.advantage.of`). What the state knows of tasks becomes columns of the step table, so that the part,
or any other, reads it by name, and so that credit derives again from what the journal wrote down.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeGuard, runtime_checkable

import numpy as np

from groupwise.data.past_attempts import Remembered
from groupwise.data.records import Task, Trajectory
from groupwise.data.segments import FloatArray
from groupwise.data.step_fields import RESERVED_NAMES
from groupwise.data.step_table import StepTable
from groupwise.parts.part import Part, kind_of
from groupwise.system.errors import ConfigError, RecordError
from groupwise.system.json_text import describe_strangeness, parse_json
from groupwise.system.text import describe_value

METHODS = ("columns", "observe", "state_dict", "load_state_dict")
"""What a state can do."""
OTHER_STARTS = frozenset({"curriculum", "tracker"})
"""Slots whose protocols have a `start` of their own, which begins something else."""
LIVE_SLOTS = OTHER_STARTS | {"env", "model", "engine", "learner", "weight_transfer"}
"""Slots whose parts open something that lives, and which may therefore have a `start` that means another thing."""


@dataclass(frozen=True, kw_only=True)
class ObservedUpdate:
    """What an update brought, as a stateful part hears it.

    Worked example: update 3 sampled four attempts at one task and the plan kept them all: four trajectories, and the
    credit of each one's steps. Had the plan left the group out, the four credits would be None, and no measure
    would have seen the four.
    """

    number: int
    """Which update, from 1."""
    trajectories: Sequence[Trajectory]
    """The unguided attempts that ended without a fault, before any filter: these speak for the policy. Their steps have
    the facts that measures found, and not what shaping added; an attempt that took no part was measured by nobody."""
    credit: Sequence[Sequence[float] | None]
    """Credit of each trajectory's steps; None = it took no part: the plan or an admission left it out, or a guided
    attempt took its place."""
    metrics: Mapping[str, float] = field(default_factory=dict)
    """What the learner measured over the whole update; empty where nothing trained."""


class PartState(Protocol):
    """What a part remembers. It changes in `observe` and `load_state_dict` alone."""

    def columns(self, tasks: Sequence[Task]) -> Mapping[str, FloatArray]:
        """What it knows of tasks, as columns of the step table: one finite number a task, by the column's name.

        A column may have a row for each task instead, a number for each index of a step; the last of a row is for all
        later steps too.
        """

    def observe(self, update: ObservedUpdate) -> None:
        """Hear what an update brought; once an update, after the weights were handed over."""

    def state_dict(self) -> dict[str, Any]:
        """All that it remembers, as JSON: numbers, text, booleans, None, lists, and dicts with text for keys."""

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from what was remembered, to the bit."""


@runtime_checkable
class ReferenceState(Protocol):
    """A state that also says which policy is the reference that a loss compares with. A run has at most one."""

    @property
    def reference(self) -> int:
        """The update whose policy it is; 0 = the one that the run started from. Only the update that was just heard of
        may take the place of the one before."""


class Stateful(Protocol):
    """A stateful part; any part of any slot may be one."""

    def start(self, *, seed: int) -> PartState:
        """Begin with nothing remembered; randomness comes from the seed alone."""


def find_stateful(root: Part, path: str = "") -> dict[str, Stateful]:
    """The stateful parts within a part, by path.

    Parts that compare equal are one part, as they are to a step table: they share one state, under the first path.
    """
    by_path: dict[str, Stateful] = {}
    for where, part in root.parts_by_path(path):
        if is_stateful(part):
            if not any(part == known for known in by_path.values()):
                by_path[where] = part
        elif callable(getattr(part, "start", None)) and part.slot not in LIVE_SLOTS:
            raise ConfigError(
                f"{where}: {kind_of(type(part))} has a method `start` that cannot be called as start(seed=...); write "
                "`def start(self, *, seed: int)` for a stateful part, or give the method another name"
            )
    return by_path


def is_stateful(part: Part) -> TypeGuard[Stateful]:
    """Whether a part is stateful: a method `start` that takes a seed and asks for nothing else."""
    start = getattr(part, "start", None)
    if part.slot in OTHER_STARTS or not callable(start):
        return False
    try:
        inspect.signature(start).bind(seed=0)
    except (TypeError, ValueError):
        return False
    return True


def read_part_state(where: str, state: PartState) -> dict[str, Any]:
    """What a part remembers, as JSON that shares nothing with it; an error that names the part where it is none."""
    state_dict = state.state_dict()
    if not isinstance(state_dict, dict):
        raise ConfigError(f"{where}: state_dict gave {describe_value(state_dict)}, but a dict of JSON values is needed")
    try:
        copy = parse_json(json.dumps(state_dict, allow_nan=False))  # in its own order, which the part may go by
    except (TypeError, ValueError, RecursionError):
        copy = None
    if copy != state_dict:
        what = describe_strangeness(state_dict) or "would come back from JSON as something else"
        raise ConfigError(
            f"{where}: what state_dict gave {what}; give numbers, text, booleans, None, lists, and dicts with text for "
            "keys (an array as array.tolist())"
        )
    assert isinstance(copy, dict), "equal to one"
    return copy


def read_columns(where: str, state: PartState, tasks: Sequence[Task]) -> dict[str, dict[str, Remembered]]:
    """What a part knows of tasks, by column and task id; an error that names the part where these are no numbers."""
    columns = state.columns(tasks)
    if not isinstance(columns, Mapping) or not all(isinstance(name, str) and name for name in columns):
        raise ConfigError(
            f"{where}: columns gave {describe_value(columns)}, but arrays by the names of columns are needed"
        )
    for name, values in columns.items():
        if not _is_column(values, len(tasks)):
            raise ConfigError(
                f"{where}: columns gave {describe_value(values)} for {name!r}, but a NumPy array of one finite float "
                f"for each of the {len(tasks)} tasks is needed, or of a row for each, by the index of a step"
            )
    return {
        name: {task.id: value for task, value in zip(tasks, values.astype(np.float64).tolist(), strict=True)}
        for name, values in columns.items()
    }


def _is_column(values: object, num_tasks: int) -> bool:
    """Whether these are finite numbers, one for each task, or a row of at least one for each."""
    return (
        isinstance(values, np.ndarray)
        and values.dtype.kind == "f"
        and values.ndim in (1, 2)
        and values.shape[0] == num_tasks
        and all(values.shape[1:])
        and bool(np.isfinite(values).all())
    )


def join_columns(table: StepTable, states: Sequence[StateBefore]) -> StepTable:
    """The table with what parts remembered of its tasks; a name that is taken is an error that says by whom."""
    if not states:
        return table
    check_names([(f"{state.path} ({state.kind})", state.columns) for state in states], taken=table.extra)
    return table.with_task_columns({name: state.columns[name] for state in states for name in state.columns})


def check_names(given: Iterable[tuple[str, Iterable[str]]], *, taken: Iterable[str] = ()) -> None:
    """Refuse names of columns that two parts give, or that are taken; `given` says who gives which."""
    own, owners = {*RESERVED_NAMES, *taken}, dict[str, str]()
    for where, names in given:
        for name in names:
            if name in own:
                raise ConfigError(f"{where} gives the column {name!r}, a name that is taken; give it another name")
            if name in owners:
                raise ConfigError(
                    f"{where} and {owners[name]} both give the column {name!r}; give one of them another name"
                )
            owners[name] = where


def check_journaled(root: Part, states: Sequence[StateBefore], *, where: str, path: str = "") -> None:
    """Refuse to derive credit again where the journal keeps nothing of a stateful part."""
    kept = {state.path for state in states}
    for missing in find_stateful(root, path):
        if missing not in kept:
            raise RecordError(
                f"{where} keeps no state of {missing}, so that its credit cannot be derived again; what it holds "
                "stands as it was written"
            )


@dataclass(frozen=True, kw_only=True)
class StateBefore:
    """What a part remembered when an update began, as the journal keeps it.

    Worked example: path "algorithm.advantage.of", kind "above_prior", state {"tasks": {"t1": [0.25, 4.0]}}, columns
    {"prior": {"t1": 0.25, "t2": 0.5}}.
    """

    path: str
    """Where the part stands in the run's settings."""
    kind: str
    """What a run file calls it."""
    state: Mapping[str, Any]
    """What it remembered."""
    columns: Mapping[str, Mapping[str, Remembered]]
    """What it knew of the update's tasks by the column's name and the task's id: a number, or one for each index of a
    step."""
