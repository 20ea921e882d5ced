"""Short ways to write the tables of the cases."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from conformance.case import Columns


def rows(names: str, *values: Sequence[Any]) -> Columns:
    """A table from its rows: `rows("task rollout step reward", ("q", 0, 0, 1.0), ...)`."""
    keys = names.split()
    return {key: [row[i] for row in values] for i, key in enumerate(keys)}


def single_step(**rewards: Sequence[float]) -> Columns:
    """Tasks whose rollouts have one step each: `single_step(q=[1, 0])` is one task with two rollouts."""
    return rows(
        "task rollout step reward",
        *((task, i, 0, float(reward)) for task, group in rewards.items() for i, reward in enumerate(group)),
    )


def make_finished(lengths: Mapping[tuple[str, str], tuple[int, float]]) -> Columns:
    """Rollouts by (task, rollout) -> (number of steps, reward of the last step); other rewards are 0."""
    return rows(
        "task rollout step reward",
        *(
            (task, rollout, t, float(reward) if t == steps - 1 else 0.0)
            for (task, rollout), (steps, reward) in lengths.items()
            for t in range(steps)
        ),
    )


def walk(task: str = "q", /, **rollouts: Sequence[tuple[Any, float]]) -> Columns:
    """Rollouts as lists of (state, reward): `walk(A=[("s0", 0), ("s1", 1)], B=[("s0", 0)])`."""
    return rows(
        "task rollout step state reward",
        *(
            (task, rollout, t, state, float(reward))
            for rollout, steps in rollouts.items()
            for t, (state, reward) in enumerate(steps)
        ),
    )


def join(*tables: Columns) -> Columns:
    """One table after the other; all have the same columns."""
    return {key: [value for table in tables for value in table[key]] for key in tables[0]}


def with_columns(table: Columns, **columns: Sequence[Any]) -> Columns:
    """The table with further columns, or with columns replaced."""
    return {**table, **columns}


def without(table: Columns, *names: str) -> Columns:
    """The table less some columns."""
    return {key: values for key, values in table.items() if key not in names}


def reorder(table: Columns, order: Sequence[int]) -> Columns:
    """The rows of the table in another order: row i of the result is row order[i] of the table."""
    return {key: [values[i] for i in order] for key, values in table.items()}
