"""Filters: which steps may train. They see the whole table; the statistics still count what they drop."""

from __future__ import annotations

import numpy as np

from groupwise.core.parts import Part
from groupwise.core.segments import BoolArray, Segments
from groupwise.core.step_table import StepTable


class DropPivot(Part, slot="filter"):
    """Drop, in each task, the one attempt that the median baseline is taken from: its credit is 0 by construction.

    Source: MC-GRPO, which samples one attempt more than it trains on. Choice: of several attempts at the median, the
    one with the lowest id.
    """

    def __call__(self, table: StepTable) -> BoolArray:
        first_step = table.attempts.first
        returns = table.episode_return[first_step]
        tasks = Segments.of(table.task[first_step])
        at_median = returns == tasks.spread(tasks.lower_median(returns), np.nan)
        pivots = np.flatnonzero(at_median)[::-1]
        pivot_of_task = np.empty(len(tasks), dtype=np.int64)
        pivot_of_task[tasks.label[pivots]] = pivots  # written last to first, so the lowest attempt stays
        kept = np.ones(len(table.attempts), dtype=np.bool_)
        kept[pivot_of_task] = False
        return kept[table.attempt]


class DropSolved(Part, slot="filter"):
    """Drop the tasks whose every attempt reached the best return: there is nothing left to learn from them.

    Source: NGRPO, which keeps the all-wrong groups and filters the all-correct ones.
    """

    best: float = 1.0
    """The return that counts as solved."""

    def __call__(self, table: StepTable) -> BoolArray:
        missed = (table.episode_return != self.best).astype(np.float64)
        return table.tasks.sum(missed)[table.task] > 0
