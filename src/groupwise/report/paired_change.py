"""The change between two evaluations of the same tasks: its interval, and a paired test."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from groupwise.store.journal import EvaluatedRollout
from groupwise.training.evaluation.summary import RunVerdict, ScoreKind, TaskSetScore, make_verdict, scores_by_task

LEVEL = 0.05
"""A change is significant below this p-value."""
MAX_ENUMERATED = 14
"""With at most this many tasks that changed, the test enumerates all signs; with more it draws some."""
DRAWS = 20_000
DRAWS_AT_ONCE = 1000
"""To bound the memory."""


@dataclass(frozen=True, kw_only=True)
class PairedChange:
    """The change of a score from the first evaluation to the last, over the tasks that both have.

    Tasks are independent, the rollouts of one task are not. So each task counts once, with the mean of its rollouts.
    """

    measure: ScoreKind
    before: TaskSetScore
    after: TaskSetScore
    interval: tuple[float, float]
    """95 % interval of the change, for further tasks of this kind."""
    p_value: float

    @property
    def value(self) -> float:
        return self.after.value - self.before.value

    @property
    def is_significant(self) -> bool:
        return self.p_value < LEVEL


def compare_evaluations(rows: Iterable[EvaluatedRollout], verdict: RunVerdict) -> PairedChange | None:
    """Compare the first and the last evaluation of a run; None if there are not two on the same tasks."""
    if verdict.before is None or not verdict.is_one_task_set:
        return None
    numbers = (verdict.before.number, verdict.after.number)
    known = [
        row
        for row in rows
        if row.name == verdict.name
        and row.number in numbers
        and (row.success is not None or verdict.measure == "outcome")
    ]
    tasks = [{row.task for row in known if row.number == number} for number in numbers]
    shared = tasks[0] & tasks[1]  # a task is missing if an environment error ended all its rollouts
    if not shared:
        return None
    paired = [row for row in known if row.task in shared]
    before, after = make_verdict(paired, verdict.name).scores
    means = [
        [
            math.fsum(scores) / len(scores)
            for scores in scores_by_task(
                [row for row in paired if row.number == number],
                lambda row: row.outcome if verdict.measure == "outcome" else row.success or 0.0,
            )
        ]
        for number in numbers
    ]
    return PairedChange(
        measure=verdict.measure,
        before=before,
        after=after,
        interval=bound_change(before, after, correlate(*means, are_fractions=verdict.measure == "success")),
        p_value=flip_signs([late - early for early, late in zip(*means, strict=True)]),
    )


def bound_change(before: TaskSetScore, after: TaskSetScore, correlation: float) -> tuple[float, float]:
    """The interval of a difference of two correlated means, from the interval of each.

        q - p -+ sqrt(a^2 - 2 r a b + b^2).

    Here p is the mean before, q the mean after, r the correlation of the tasks' means. For the lower bound, a is the
    distance of q to its lower bound, and b that of p to its upper one. For the upper bound it is the other way round.
    With Wilson's intervals this is Newcombe's interval for paired fractions. Unlike a bootstrap's, it has a width even
    if no task or every task changed. With intervals of 1.96 standard errors it is that of a paired z-test.

    Sources: Newcombe 1998, Statistics in Medicine 17:2635, method 10. For other means: Zou and Donner 2008, Statistics
    in Medicine 27:1693.
    """

    def length(up: float, down: float) -> float:
        return math.sqrt(max(up * up - 2 * correlation * up * down + down * down, 0.0))

    (p_low, p_high), (q_low, q_high) = before.interval, after.interval
    change = after.value - before.value
    return (
        change - length(after.value - q_low, p_high - before.value),
        change + length(q_high - after.value, before.value - p_low),
    )


def correlate(first: Sequence[float], second: Sequence[float], *, are_fractions: bool) -> float:
    """Pearson's correlation of the tasks' means; 0 if one side has no variance.

    For fractions, Newcombe's continuity correction lowers a positive covariance of n tasks by 1 / (2 n). Without it,
    intervals over few tasks are too narrow.
    """
    centred = [np.subtract(values, math.fsum(values) / len(values)) for values in (first, second)]
    covariance = float((centred[0] * centred[1]).mean())
    if are_fractions and covariance > 0:
        covariance = max(covariance - 0.5 / len(first), 0.0)
    scale = math.sqrt(float((centred[0] ** 2).mean() * (centred[1] ** 2).mean()))
    return covariance / scale if scale > 0 else 0.0


def flip_signs(differences: Sequence[float]) -> float:
    """The two-sided p-value of a paired permutation test: how often random signs give a sum that is as far from 0.

    If training changed nothing, before and after are exchangeable in each task, so each difference may have either
    sign. Up to 14 nonzero differences have all signs enumerated; else 20,000 signs are drawn with a fixed seed, and
    the observed ones count as one more. With one rollout per task this is the exact McNemar test.

    >>> flip_signs([1.0, 1.0, 1.0, 1.0, 0.0])
    0.125
    """
    changed = np.array([difference for difference in differences if difference])
    num = len(changed)
    least = abs(float(changed.sum())) * (1 - 1e-9)  # sums in another order differ in their last digits
    if num <= MAX_ENUMERATED:
        signs = 1 - 2 * ((np.arange(2**num)[:, None] >> np.arange(num)) & 1)
        return float((np.abs(signs @ changed) >= least).mean())
    generator, extreme = np.random.default_rng(0), 1
    for _ in range(DRAWS // DRAWS_AT_ONCE):
        signs = 1 - 2 * generator.integers(2, size=(DRAWS_AT_ONCE, num))
        extreme += int((np.abs(signs @ changed) >= least).sum())
    return extreme / (DRAWS + 1)
