"""Oracles of the rows that two methods leave out of training: MC-GRPO's pivot, NGRPO's solved tasks."""

from __future__ import annotations

from tests.oracles.episode import lower_median
from tests.oracles.rows import Row, episode_returns, number, steps_of


def mc_grpo_keep(rows: list[Row]) -> list[bool]:
    """False on the rollout of lowest id among those whose return is the task's lower median (numbers, MC-GRPO).

    Example: returns 0.2, 1, 0, 0.9, 0.5 of rollouts 0..4 have median 0.5, so rollout 4 is left out.
    """
    returns = episode_returns(steps_of(rows))
    pivots = set()
    for task in {task for task, _ in returns}:
        own = {rollout: value for (owner, rollout), value in returns.items() if owner == task}
        middle = lower_median(list(own.values()))
        pivots.add((task, min((rollout for rollout, value in own.items() if value == middle), key=_order)))
    return [(row["task"], row["rollout"]) not in pivots and bool(row.get("trains", True)) for row in rows]


def ngrpo_keep(rows: list[Row], *, best: float = 1.0) -> list[bool]:
    """False on tasks where every rollout already reached `best`, by its accuracy where the table has it.

    Example: returns 1, 1 of one task and 1, 0 of another with best = 1: the first task is left out. Returns 0.8, 0.9 of
    accuracy 1, 1: left out too.
    """
    steps = steps_of(rows)
    scores = episode_returns(steps)
    for step in steps:
        if "accuracy" in step.row:
            scores[step.who] = number(step.row["accuracy"])
    unsolved = {task for (task, _), score in scores.items() if score < best}
    return [row["task"] in unsolved and bool(row.get("trains", True)) for row in rows]


def _order(rollout: object) -> tuple[int, str]:
    """Integers by size, texts by code point."""
    return (rollout, "") if isinstance(rollout, int) else (0, str(rollout))
