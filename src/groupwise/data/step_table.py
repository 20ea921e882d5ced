"""The step table: many recorded steps as sorted columns.

Axes: N input rows, S steps (rows that differ only by segment are one step), A rollouts, M tasks.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, TypeVar, cast

import numpy as np
import numpy.typing as npt

from groupwise.data import column_checks as check
from groupwise.data.column_checks import Column
from groupwise.data.field_kinds import Check
from groupwise.data.past_rollouts import Remembered, spread_remembered
from groupwise.data.records import Trajectory
from groupwise.data.segments import (
    NOT_COMPARABLE,
    BoolArray,
    FloatArray,
    IntArray,
    Segments,
    count_weighted,
    order_by_key,
)
from groupwise.data.step_columns import lay_out_trajectories
from groupwise.data.step_fields import COLUMNS, describe_column_source
from groupwise.system.errors import RecordError, nearest

_Answer = TypeVar("_Answer", bound=npt.NDArray[Any])

REQUIRED = ("task", "rollout", "step", "reward")
OWN_FIELDS = (*REQUIRED, "state", "segment")
_OF_WHOLE_STEP = tuple(name for name, column in COLUMNS.items() if column.of_whole_step)


@dataclass(frozen=True, eq=False)
class StepTable:
    """The columns of many steps, sorted by task, rollout and index.

    A step is identified by the ids of its task and rollout and by its index, never by its position. Every part works
    on the sorted steps: the steps of a rollout lie together, in time order, and the order of the input rows changes no
    bit of a result. `Credit` returns its numbers in the order of the input rows.

    Worked example: two rollouts of one task, rows shuffled.

    >>> table = StepTable.from_columns(
    ...     task=["t", "t", "t"], rollout=[1, 0, 1], step=[1, 0, 0], state=["b", "a", "a"], reward=[1.0, 0.0, 0.0]
    ... )
    >>> table.step.tolist(), table.reward.tolist(), table.step_of_row.tolist()
    ([0, 0, 1], [0.0, 0.0, 1.0], [2, 0, 1])
    """

    task: IntArray
    """Task of each step (S), a code into `task_ids`."""
    rollout: IntArray
    """Rollout of each step (S), numbered over all tasks."""
    step: IntArray
    """Index of each step within its rollout (S)."""
    state: IntArray
    """State of each step (S), a code into `state_keys`; -1 = not comparable."""
    reward: FloatArray
    """Reward of each step (S)."""
    task_ids: Sequence[str] | Sequence[int]
    """Ids of the tasks (M)."""
    rollout_ids: Sequence[str] | Sequence[int]
    """Id of each rollout within its task (A)."""
    state_keys: Sequence[Hashable]
    """The distinct states."""
    extra: Mapping[str, npt.NDArray[Any]]
    """Further columns by name (S): outcome, well_formed, accepted, action, cut, stop, age, tokens, ..., or your own."""
    step_of_row: IntArray
    """The step of each input row (N)."""
    filters: Sequence[Callable[[StepTable], BoolArray]] = ()
    """Functions that say which steps may train, beside the column `trains`. Called once, when a part needs them."""
    _asked: dict[Any, npt.NDArray[Any]] = field(default_factory=dict, repr=False)

    @classmethod
    def from_columns(
        cls,
        *,
        task: Column | None = None,
        rollout: Column | None = None,
        step: Column | None = None,
        reward: Column | None = None,
        state: Column | None = None,
        **extra: Column,
    ) -> StepTable:
        """Build a table from columns of equal length, in any row order; task, rollout, step and reward are required.

        Args:
            task: id of the task (text or integers); tasks are never compared with each other.
            rollout: id of the rollout, within its task.
            step: position of the step in its rollout, from 0.
            reward: reward of the step, finite.
            state: the state key, anything hashable; None = the step is not compared by state.
            **extra: further columns. `outcome` (the rollout's final score, the same on all its rows), `well_formed`
                (the response has the required format), `accepted` (the environment accepted the action), `valid`
                (both), `tokens` (sampled tokens), `segment` (rows of one step that was cut into several training
                sequences: rewards and tokens are summed, the step counts once), `cut` (the response was cut off),
                `stop` (why the rollout ended, on its last step), `age` (staleness in policy versions), `off_policy`
                (not sampled by the policy that learns), `trains` (the step may train; whitening counts only these),
                `action`, `role`, `branch`, `accuracy`, `next_state`, or any other, for `ColumnSignal(name=...)`.
        """
        columns = dict[str, Column]()
        given = {"task": task, "rollout": rollout, "step": step, "reward": reward, "state": state, **extra}
        for name, column in given.items():
            if column is not None:
                columns[name] = check.to_column(name, column)
        if "state" not in columns and "states" in columns:
            raise RecordError("there is a column 'states' but no column 'state'; pass it as state=...")
        for name in REQUIRED:
            if name not in columns:
                raise RecordError(
                    f"column {name!r} is missing; a table needs {', '.join(REQUIRED)}; found "
                    f"{', '.join(columns) or 'nothing'}"
                )
        check.check_lengths(columns)
        task_code, task_ids = check.code_ids("task", columns["task"])
        rollout_code, rollout_names = check.code_ids("rollout", columns["rollout"])
        step_index = check.to_integers("step", columns["step"])
        rewards = check.to_numbers("reward", columns["reward"], largest=check.LARGEST_REWARD)
        rows = _identify(task_code, rollout_code, step_index, columns)
        first_task, first_rollout = task_code[rows.first], rollout_code[rows.first]
        begins = np.ones(len(rows.first), dtype=np.bool_)
        begins[1:] = (first_task[1:] != first_task[:-1]) | (first_rollout[1:] != first_rollout[:-1])
        state_code, state_keys = np.full(len(rows.first), NOT_COMPARABLE, dtype=np.int64), list[Hashable]()
        if "state" in columns:
            state_code, state_keys = check.code_keys("state", _take(columns["state"], rows.first))
        extra_columns = dict[str, npt.NDArray[Any]]()
        for name, column in columns.items():
            if name not in OWN_FIELDS:
                extra_columns[name] = _read_extra_column(name, column, rows)
        if "well_formed" in extra_columns and "accepted" in extra_columns:
            valid = extra_columns["well_formed"] & extra_columns["accepted"]
            if "valid" in extra_columns and not np.array_equal(valid, extra_columns["valid"]):
                row = int(rows.first[np.flatnonzero(valid != extra_columns["valid"])[0]])
                raise RecordError(
                    f"column 'valid', row {row}: it contradicts 'well_formed' and 'accepted'; leave it out, because "
                    "they determine it",
                    row=row,
                )
            extra_columns["valid"] = valid
        table = cls(
            task=first_task,
            rollout=np.cumsum(begins) - 1,
            step=step_index[rows.first],
            state=state_code,
            reward=rows.total(rewards),
            task_ids=task_ids,
            rollout_ids=[rollout_names[code] for code in first_rollout[begins]],
            state_keys=state_keys,
            extra=extra_columns,
            step_of_row=rows.step,
        )
        if "outcome" in extra_columns:
            constant = table.rollouts.is_constant(extra_columns["outcome"])
            if not constant.all():
                row = int(table.rollouts.first[np.flatnonzero(~constant)[0]])
                raise RecordError(
                    f"{table.describe_step(row)}: the rows of this rollout have different outcomes; give them all the "
                    "same outcome, and put rewards of single steps into `reward`"
                )
        return table

    @classmethod
    def from_trajectories(cls, trajectories: Sequence[Trajectory], *, version: int | None = None) -> StepTable:
        """Build a table with one row per step, in the order of the trajectories and of their steps.

        Args:
            trajectories: the recorded rollouts.
            version: the policy version that is about to learn. With it, the table has the column `age` if every
                trajectory has `versions`.
        """
        return cls.from_columns(**lay_out_trajectories(trajectories, version=version))

    def __len__(self) -> int:
        return len(self.step)

    @cached_property
    def tasks(self) -> Segments:
        return Segments.of(self.task)

    @cached_property
    def rollouts(self) -> Segments:
        return Segments.of(self.rollout)

    @cached_property
    def episode_return(self) -> FloatArray:
        """The return of each step's rollout (S): the column `outcome` if given, else the sum of its rewards."""
        if "outcome" in self.extra:
            return np.asarray(self.extra["outcome"], dtype=np.float64)
        return self.rollouts.spread(self.rollouts.sum(self.reward))

    @cached_property
    def off_policy(self) -> BoolArray:
        """Whether each step was sampled off-policy (S)."""
        return np.asarray(self.extra.get("off_policy", np.zeros(len(self))), dtype=np.bool_)

    @cached_property
    def tokens(self) -> FloatArray:
        """Sampled tokens of each step (S); 1 per step if the table lacks the column."""
        return np.asarray(self.extra.get("tokens", np.ones(len(self))), dtype=np.float64)

    @cached_property
    def trains(self) -> BoolArray:
        """Whether each step may train (S), by the column `trains` and by every filter."""
        kept = np.asarray(self.extra.get("trains", np.ones(len(self), dtype=np.bool_)), dtype=np.bool_)
        bare = replace(self, filters=()) if self.filters else self
        for admits in self.filters:
            kept = kept & admits(bare)
        return kept

    @cached_property
    def trained_tokens(self) -> FloatArray:
        """Sampled tokens of each step (S); 0 for steps that may not train."""
        return np.where(self.trains, self.tokens, 0.0)

    def with_filters(self, filters: Sequence[Callable[[StepTable], BoolArray]]) -> StepTable:
        return replace(self, filters=filters) if filters else self

    def with_task_columns(self, columns: Mapping[str, Mapping[Any, Remembered]]) -> StepTable:
        """The same table with further columns, given by column name and task id: one number per task, or a list with
        one number per step index.
        """
        if not columns:
            return self
        added: dict[str, FloatArray] = {}
        for name, by_task in columns.items():
            unknown = next((task for task in self.task_ids if task not in by_task), None)
            if unknown is not None:
                raise RecordError(
                    f"task {check.quote_value(unknown)} has no number in the column {name!r}; give it one"
                )
            added[name] = spread_remembered([by_task[task] for task in self.task_ids], self.task, self.step)
        return replace(self, extra={**self.extra, **added}, _asked={})  # earlier answers did not know these columns

    def ask_once(self, part: Callable[[StepTable], _Answer]) -> _Answer:
        """The result of a grouper or a signal for this table. Parts that compare equal are called once."""
        if part not in self._asked:
            answer = part(self)
            answer.flags.writeable = False  # several parts will read it
            self._asked[part] = answer
        return cast(_Answer, self._asked[part])

    def has_step_before(self, steps: int) -> BoolArray:
        """Whether the table has the step `steps` earlier in the same rollout, and all between (S)."""
        is_there = np.zeros(len(self), dtype=np.bool_)
        if 0 <= steps < len(self):
            same = self.rollout[steps:] == self.rollout[: len(self) - steps]
            is_there[steps:] = same & (self.step[steps:] - self.step[: len(self) - steps] == steps)
        return is_there

    def column(self, name: str) -> npt.NDArray[Any]:
        """A further column (S), or an error that lists the existing ones."""
        if name not in self.extra:
            source = f"{made_by}, or " if (made_by := describe_column_source(name)) else ""
            raise RecordError(
                f"the table has no column {name!r}, which this method reads; {source}pass it to "
                f"from_columns({name}=...). " + nearest(name, self.extra)
            )
        return self.extra[name]

    def codes(self, name: str) -> IntArray:
        """A further column as codes (S): equal entries get equal codes, None becomes -1."""
        return check.code_keys(name, self.column(name))[0]

    def describe_step(self, step: int) -> str:
        task, rollout = self.task_ids[self.task[step]], self.rollout_ids[self.rollout[step]]
        return f"task {check.quote_value(task)}, rollout {check.quote_value(rollout)}, step {self.step[step]}"


@dataclass(frozen=True, eq=False)
class _RowsOfSteps:
    """Which rows make up each step: the sorted order of rows (N), each row's step (N), each step's first row (S)."""

    order: IntArray
    step: IntArray
    first: IntArray

    def total(self, values: FloatArray) -> FloatArray:
        """Sum over the rows of each step (S), in sorted order, so that shuffled rows give bit-exact sums."""
        if len(self.first) == len(self.step):
            return values[self.first]
        return count_weighted(self.step[self.order], values[self.order], len(self.first))


def _identify(task: IntArray, rollout: IntArray, index: IntArray, columns: Mapping[str, Column]) -> _RowsOfSteps:
    """Sort rows by task, rollout, index and segment. Rows that differ only by segment are one step."""
    identity = [task, rollout, index]
    if "segment" in columns:
        identity.append(check.to_integers("segment", columns["segment"]))
    # One integer per row that sorts as the columns do, first column first.
    key = identity[0]
    for column in identity[1:]:
        width = int(column.max(initial=0)) + 1
        if (int(key.max(initial=0)) + 1) * width > 2**62:
            key = Segments.of(key).label  # numbered densely, it takes fewer digits
        key = key * width + column
    order, starts = order_by_key(key)
    if len(starts) < len(order):
        twice = int(np.flatnonzero(np.diff(np.append(starts, len(order))) > 1)[0])
        first, second = (int(row) for row in order[starts[twice] : starts[twice] + 2])
        names = [name for name in ("task", "rollout", "step", "segment") if name in columns]
        words = ", ".join(f"{name} {check.quote_value(columns[name][first])}" for name in names)
        raise RecordError(
            f"rows {first} and {second} have the same identity ({words}); remove the copy, or number the parts of a "
            "step with `segment`",
            row=second,
        )
    step = np.empty_like(order)
    if "segment" not in columns:
        step[order] = np.arange(len(order))
        return _RowsOfSteps(order=order, step=step, first=order)
    begins = np.zeros(len(order), dtype=np.bool_)
    begins[:1] = True
    for column in (task[order], rollout[order], index[order]):
        begins[1:] |= column[1:] != column[:-1]
    step[order] = np.cumsum(begins) - 1
    rows = _RowsOfSteps(order=order, step=step, first=order[begins])
    _check_segments(rows, columns)
    return rows


def _check_segments(rows: _RowsOfSteps, columns: Mapping[str, Column]) -> None:
    """Rows of one step must agree on its result; its state and action are those of the first row."""
    firsts = rows.first[rows.step].tolist()
    for name in _OF_WHOLE_STEP:
        for row, first in enumerate(firsts) if name in columns else ():
            try:
                differs = bool(columns[name][row] != columns[name][first])
            except Exception:  # such as an array: the check of the column itself reports it
                continue
            if differs:
                raise RecordError(
                    f"rows {first} and {row} are segments of one step, but differ in {name!r} "
                    f"({check.quote_value(columns[name][first])} and {check.quote_value(columns[name][row])}); "
                    "give both the same",
                    row=row,
                )


def _read_extra_column(name: str, column: Column, rows: _RowsOfSteps) -> npt.NDArray[Any]:
    kind = COLUMNS[name].check if name in COLUMNS else Check.ANYTHING
    if kind is Check.NUMBER:
        return check.to_numbers(name, column, largest=check.LARGEST_REWARD)[rows.first]
    if kind is Check.FLAG:
        return check.to_flags(name, column)[rows.first]
    if kind is Check.COUNT:
        return check.to_integers(name, column)[rows.first]
    if kind is Check.SUM:
        return rows.total(check.to_integers(name, column).astype(np.float64))
    return _take(column, rows.first)


def _take(column: Column, rows: IntArray) -> npt.NDArray[Any]:
    if isinstance(column, np.ndarray):
        return column[rows]
    return np.fromiter(map(column.__getitem__, rows.tolist()), dtype=object, count=len(rows))
