"""What an adapter for a row-per-attempt library needs to know of a table."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from conformance.case import Columns

AttemptKey = tuple[Any, Any]
"""(task, attempt)"""


def rows_by_attempt(columns: Columns) -> dict[AttemptKey, list[int]]:
    """Rows of each attempt in order of step and segment; attempts in order of first appearance."""
    rows: dict[AttemptKey, list[int]] = defaultdict(list)
    for row, key in enumerate(zip(columns["task"], columns["attempt"], strict=True)):
        rows[key].append(row)
    segment = columns.get("segment", [0] * len(columns["task"]))
    for members in rows.values():
        members.sort(key=lambda row: (columns["index"][row], segment[row]))
    return dict(rows)


def attempts_by_task(columns: Columns) -> dict[Any, list[AttemptKey]]:
    """Attempts of each task, both in order of first appearance."""
    attempts: dict[Any, list[AttemptKey]] = defaultdict(list)
    for key in rows_by_attempt(columns):
        attempts[key[0]].append(key)
    return dict(attempts)


def episode_returns(columns: Columns) -> dict[AttemptKey, float]:
    """The outcome of each attempt where the table has it, otherwise the sum of its rewards."""
    outcome = columns.get("outcome")
    return {
        key: float(outcome[members[0]]) if outcome is not None else sum(columns["reward"][row] for row in members)
        for key, members in rows_by_attempt(columns).items()
    }


def pays_only_at_the_end(columns: Columns) -> bool:
    """Whether every step but the last of each attempt has reward 0."""
    return all(columns["reward"][row] == 0 for members in rows_by_attempt(columns).values() for row in members[:-1])
