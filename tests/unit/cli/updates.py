"""Updates that a screen shows."""

from __future__ import annotations

from groupwise.store.journal import Update


def update(number: int, success: float) -> Update:
    metrics = {"rollout/success": success, "rollout/return": 2 * success, "seconds/rollout": 3.0, "seconds/learn": 1.0}
    return Update(number=number, version=number, metrics=metrics)
