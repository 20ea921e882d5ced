"""Rows of evaluations, made up: one attempt at each of a few tasks."""

from __future__ import annotations

from collections.abc import Sequence

from groupwise.store.journal import EvaluatedAttempt


def panel_rows(
    number: int, successes: Sequence[float | None], *, split: str = "test", panel: str = "p"
) -> list[EvaluatedAttempt]:
    """The rows of an evaluation: one attempt a task, tasks in two families and a third."""
    return [
        EvaluatedAttempt(
            number=number,
            split=split,
            seed=0,
            task=f"t{i}",
            attempt=0,
            panel=panel,
            tags="even" if i % 2 == 0 else "odd,late",
            stop="terminated",
            success=success,
            outcome=0.5 * i,
            steps=i,
        )
        for i, success in enumerate(successes)
    ]


BEFORE = panel_rows(0, [1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0])
AFTER = panel_rows(8, [1.0] * 9 + [0.0])
