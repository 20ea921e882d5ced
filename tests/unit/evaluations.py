"""Rollouts of an evaluation, for tests that need some."""

from __future__ import annotations

from typing import Any

from groupwise.store.journal import EvaluatedRollout


def make_evaluated(**over: Any) -> EvaluatedRollout:
    """A solved rollout at task `a` after update 1; `over` says what is different."""
    row: dict[str, Any] = {
        "number": 1,
        "split": "test",
        "seed": 0,
        "task": "a",
        "rollout": 0,
        "task_set": "p",
        "tags": "",
        "stop": "terminated",
        "success": 1.0,
        "outcome": 1.0,
        "steps": 2,
    }
    row |= over
    return EvaluatedRollout(**{"name": row["split"], **row})
