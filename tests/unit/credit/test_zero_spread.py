"""The zero-spread filter: tasks whose rollouts all did equally well teach nothing."""

from __future__ import annotations

import random

from groupwise import StepTable, methods
from groupwise.credit import ZeroSpread
from tests.oracles.rows import episode_returns, steps_of
from tests.strategies import MODERATE, columns_of, random_rows
from tests.unit.tables import single_steps, table


def test_tasks_of_equal_returns_are_dropped_whole() -> None:
    rows = single_steps([1, 1], [1, 0], [0, 0, 0], [0.5, 0.5, 0.25])
    assert ZeroSpread()(rows).tolist() == [False] * 2 + [True] * 2 + [False] * 3 + [True] * 3


def test_equal_means_equal_not_nearly_so() -> None:
    assert ZeroSpread()(single_steps([0.1, 0.1], [1, 1 + 1e-12])).tolist() == [False, False, True, True]


def test_a_task_with_one_rollout_is_dropped_unless_told_otherwise() -> None:
    rows = table("task rollout step reward", ("q", 0, 0, 0.0), ("q", 0, 1, 1.0), ("r", 0, 0, 1.0), ("r", 1, 0, 1.0))
    assert ZeroSpread()(rows).tolist() == [False] * 4
    assert ZeroSpread(alone="keep")(rows).tolist() == [True, True, False, False]


def test_accuracy_counts_where_it_is_recorded_not_the_shaped_return() -> None:
    """Both rollouts are right; one was too long and its return is lower."""
    rows = table("task rollout step reward accuracy", ("q", 0, 0, 1.0, 1.0), ("q", 1, 0, 0.5, 1.0))
    assert ZeroSpread()(rows).tolist() == [False, False]


def test_returns_are_compared_not_the_rewards_of_steps() -> None:
    rows = table("task rollout step reward", ("q", 0, 0, 0.0), ("q", 0, 1, 1.0), ("q", 1, 0, 1.0))
    assert ZeroSpread()(rows).tolist() == [False] * 3


def test_dapo_keeps_the_rows_a_loop_would_keep() -> None:
    rng = random.Random("zero spread")
    for _ in range(300):
        drawn = random_rows(rng, regimes=MODERATE)
        rows = [{name: value for name, value in row.items() if name not in ("accuracy", "trains")} for row in drawn]
        returns = episode_returns(steps_of(rows))
        spread = {task: len({value for (owner, _), value in returns.items() if owner == task}) for task, _ in returns}
        kept = methods.dapo().keep(StepTable.from_columns(**columns_of(rows)))
        assert [bool(flag) for flag in kept] == [spread[row["task"]] > 1 for row in rows]
