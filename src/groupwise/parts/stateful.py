"""Stateful parts: how they start, what they receive per update, and how other parts read their state.

A part stays a frozen model. The run keeps its state under the part's path in the settings (`algorithm.advantage.of`).
What the state knows of tasks becomes columns of the step table. Any part can read them by name, and advantages can be
computed again from the journal.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeGuard, runtime_checkable

import numpy as np

from groupwise.data.past_rollouts import Remembered
from groupwise.data.records import Task, Trajectory
from groupwise.data.segments import FloatArray
from groupwise.data.step_fields import RESERVED_NAMES
from groupwise.data.step_table import StepTable
from groupwise.parts.part import Part, kind_of
from groupwise.system.errors import ConfigError, RecordError
from groupwise.system.json_text import describe_strangeness, parse_json
from groupwise.system.text import describe_value

METHODS = ("columns", "observe", "state_dict", "load_state_dict")
"""The methods of a state."""
OTHER_STARTS = frozenset({"curriculum", "tracker"})
"""Slots whose protocols have another method `start`."""
LIVE_SLOTS = OTHER_STARTS | {"env", "model", "engine", "learner", "weight_sync"}
"""Slots whose parts open something, and may therefore have a method `start` with another meaning."""


@dataclass(frozen=True, kw_only=True)
class ObservedUpdate:
    """The results of an update, as a stateful part receives them.

    Worked example: update 3 sampled four rollouts of one task and the plan kept them all: four trajectories, and the
    advantages of each one's steps. If the plan had dropped the group, the four entries of `credit` would be None, and
    no scorer would have run on the four.
    """

    number: int
    """Number of the update, from 1."""
    trajectories: Sequence[Trajectory]
    """The rollouts without a hint that ended without an error, before any filter: these show what the policy does.
    Their steps have the info of scorers, but no reward shaping. Rollouts that were not used have no info of scorers."""
    credit: Sequence[Sequence[float] | None]
    """Advantages of each trajectory's steps; None = it was not used: the plan or a rollout filter dropped it, or a
    rollout with a hint took its place."""
    metrics: Mapping[str, float] = field(default_factory=dict)
    """The learner's metrics of the whole update; empty if nothing trained."""


class PartState(Protocol):
    """The state of a part. It changes only in `observe` and `load_state_dict`."""

    def columns(self, tasks: Sequence[Task]) -> Mapping[str, FloatArray]:
        """What it knows of tasks, as columns of the step table: one finite number per task, by the column's name.

        A column may have one row per task instead, with a number per step index. The last number of a row also holds
        for all later steps.
        """

    def observe(self, update: ObservedUpdate) -> None:
        """Receive the results of an update, once per update, after the weight sync."""

    def state_dict(self) -> dict[str, Any]:
        """The whole state as JSON: numbers, text, booleans, None, lists, and dicts with text for keys."""

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore a state bit-exact."""


@runtime_checkable
class ReferenceState(Protocol):
    """A state that also names the reference policy of the loss. A run has at most one."""

    @property
    def reference(self) -> int:
        """The update whose policy is the reference; 0 = the initial policy. It may only change to the update that was
        just observed."""


class Stateful(Protocol):
    """A stateful part. Parts of any slot may be stateful."""

    def start(self, *, seed: int) -> PartState:
        """A new state; all randomness comes from the seed."""


def find_stateful(root: Part, path: str = "") -> dict[str, Stateful]:
    """The stateful parts within a part, by path. Equal parts share one state, under the first path."""
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
    """Whether a part is stateful: it has a method `start` that needs only a seed."""
    start = getattr(part, "start", None)
    if part.slot in OTHER_STARTS or not callable(start):
        return False
    try:
        inspect.signature(start).bind(seed=0)
    except (TypeError, ValueError):
        return False
    return True


def read_part_state(where: str, state: PartState) -> dict[str, Any]:
    """A copy of a part's state, through JSON; an error names the part if its state is not JSON."""
    state_dict = state.state_dict()
    if not isinstance(state_dict, dict):
        raise ConfigError(f"{where}: state_dict returned {describe_value(state_dict)}; expected a dict of JSON values")
    try:
        copy = parse_json(json.dumps(state_dict, allow_nan=False))  # keys keep their order, which the part may use
    except (TypeError, ValueError, RecursionError):
        copy = None
    if copy != state_dict:
        what = describe_strangeness(state_dict) or "would change when it is written to JSON and read again"
        raise ConfigError(
            f"{where}: the result of state_dict {what}; return numbers, text, booleans, None, lists, and dicts with "
            "text for keys (an array as array.tolist())"
        )
    assert isinstance(copy, dict), "equal to one"
    return copy


def read_columns(where: str, state: PartState, tasks: Sequence[Task]) -> dict[str, dict[str, Remembered]]:
    """What a part knows of tasks, by column and task id; an error names the part if these are no numbers."""
    columns = state.columns(tasks)
    if not isinstance(columns, Mapping) or not all(isinstance(name, str) and name for name in columns):
        raise ConfigError(
            f"{where}: columns returned {describe_value(columns)}; expected a dict of arrays by column name"
        )
    for name, values in columns.items():
        if not (
            isinstance(values, np.ndarray)
            and values.dtype.kind == "f"
            and values.ndim in (1, 2)
            and values.shape[0] == len(tasks)
            and all(values.shape[1:])
            and np.isfinite(values).all()
        ):
            raise ConfigError(
                f"{where}: columns returned {describe_value(values)} for {name!r}; expected a NumPy array of one "
                f"finite float for each of the {len(tasks)} tasks, or of one row of floats, one per step number"
            )
    return {
        name: {task.id: value for task, value in zip(tasks, values.astype(np.float64).tolist(), strict=True)}
        for name, values in columns.items()
    }


def join_columns(table: StepTable, states: Sequence[StateBefore]) -> StepTable:
    """The table with the states' columns; an error names the part whose column has a name that is taken."""
    if not states:
        return table
    check_names([(f"{state.path} ({state.kind})", state.columns) for state in states], taken=table.extra)
    return table.with_task_columns({name: state.columns[name] for state in states for name in state.columns})


def check_names(given: Iterable[tuple[str, Iterable[str]]], *, taken: Iterable[str] = ()) -> None:
    """Raise a ConfigError if a name of a column is taken, or given by two parts; `given` has the names per part."""
    own, owners = {*RESERVED_NAMES, *taken}, dict[str, str]()
    for where, names in given:
        for name in names:
            if name in own:
                raise ConfigError(f"{where} returns the column {name!r}, which the table already has; rename it")
            if name in owners:
                raise ConfigError(f"{where} and {owners[name]} both return the column {name!r}; rename one of them")
            owners[name] = where


def check_journaled(root: Part, states: Sequence[StateBefore], *, where: str, path: str = "") -> None:
    """Raise a RecordError if the journal has no state of a stateful part: advantages cannot be computed again."""
    kept = {state.path for state in states}
    for missing in find_stateful(root, path):
        if missing not in kept:
            raise RecordError(
                f"{where} has no saved state of {missing}, so its advantages cannot be computed again; `groupwise "
                "inspect` shows the recorded ones"
            )


@dataclass(frozen=True, kw_only=True)
class StateBefore:
    """A part's state when an update began, as the journal stores it.

    Worked example: path "algorithm.advantage.of", kind "above_prior", state {"tasks": {"t1": [0.25, 4.0]}}, columns
    {"prior": {"t1": 0.25, "t2": 0.5}}.
    """

    path: str
    """The part's path in the run's settings."""
    kind: str
    """The part's kind."""
    state: Mapping[str, Any]
    """The state."""
    columns: Mapping[str, Mapping[str, Remembered]]
    """Its columns for the update's tasks, by column and task id: a number, or one per step index."""
