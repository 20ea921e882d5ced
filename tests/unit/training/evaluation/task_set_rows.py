"""Rows of evaluations, made up: one rollout at each of a few tasks."""

from __future__ import annotations

from collections.abc import Sequence

from groupwise.store.journal import EvaluatedRollout


def task_set_rows(
    number: int, successes: Sequence[float | None], *, split: str = "test", task_set: str = "p"
) -> list[EvaluatedRollout]:
    """The rows of an evaluation: one rollout a task, tasks in two categories and a third."""
    return [
        EvaluatedRollout(
            number=number,
            name=split,
            split=split,
            seed=0,
            task=f"t{i}",
            rollout=0,
            task_set=task_set,
            tags="even" if i % 2 == 0 else "odd,late",
            stop="terminated",
            success=success,
            outcome=0.5 * i,
            steps=i,
        )
        for i, success in enumerate(successes)
    ]


BEFORE = task_set_rows(0, [1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0])
AFTER = task_set_rows(8, [1.0] * 9 + [0.0])
