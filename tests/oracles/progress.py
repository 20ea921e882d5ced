"""Oracles of PAV: a rollout against the others, plus each step's own progress; and the best of several, set by set."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

from tests.oracles.episode import rloo
from tests.oracles.rows import Result, Row, number


def pav(rows: list[Row], *, alpha: float = 0.5) -> Result:
    """A_t = R - mean of the other rollouts' R + alpha * progress of the step (numbers, PAV).

    Example: returns 1 and 0, progress 0.3 at a step of the first: 1 + 0.5 x 0.3 = 1.15.
    """
    values, compared = rloo(rows)
    if alpha == 0:
        return values, compared
    steps: dict[object, set[object]] = {}
    for row in rows:
        steps.setdefault(row["task"], set()).add((row["rollout"], row["step"]))
    credit = [value + alpha * number(row["prover_progress"]) for value, row in zip(values, rows, strict=True)]
    return credit, [flag or len(steps[row["task"]]) > 1 for flag, row in zip(compared, rows, strict=True)]


def best_of(scores: Sequence[float], num: int) -> float:
    """The mean of the best score over all sets of so many; example: the best of two among 1, 0, 0: 2/3."""
    chosen = list(combinations(scores, num))
    return sum(max(own) for own in chosen) / len(chosen)
