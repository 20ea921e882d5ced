"""What an adapter for a row-per-rollout library needs to know of a table."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from conformance.case import Columns

RolloutKey = tuple[Any, Any]
"""(task, rollout)"""


def rows_by_rollout(columns: Columns) -> dict[RolloutKey, list[int]]:
    """Rows of each rollout in order of step and segment; rollouts in order of first appearance."""
    rows: dict[RolloutKey, list[int]] = defaultdict(list)
    for row, key in enumerate(zip(columns["task"], columns["rollout"], strict=True)):
        rows[key].append(row)
    segment = columns.get("segment", [0] * len(columns["task"]))
    for members in rows.values():
        members.sort(key=lambda row: (columns["step"][row], segment[row]))
    return dict(rows)


def rollouts_by_task(columns: Columns) -> dict[Any, list[RolloutKey]]:
    """Rollouts of each task, both in order of first appearance."""
    rollouts: dict[Any, list[RolloutKey]] = defaultdict(list)
    for key in rows_by_rollout(columns):
        rollouts[key[0]].append(key)
    return dict(rollouts)


def episode_returns(columns: Columns) -> dict[RolloutKey, float]:
    """The outcome of each rollout where the table has it, otherwise the sum of its rewards."""
    outcome = columns.get("outcome")
    return {
        key: float(outcome[members[0]]) if outcome is not None else sum(columns["reward"][row] for row in members)
        for key, members in rows_by_rollout(columns).items()
    }


def pays_only_at_the_end(columns: Columns) -> bool:
    """Whether every step but the last of each rollout has reward 0."""
    return all(columns["reward"][row] == 0 for members in rows_by_rollout(columns).values() for row in members[:-1])
