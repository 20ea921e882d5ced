"""The filter that leaves out the attempt at the median."""

from __future__ import annotations

import numpy as np

from groupwise.core.errors import ConfigError
from groupwise.core.parts.part import Part
from groupwise.core.segments import BoolArray, Segments
from groupwise.core.step_table import StepTable


class DropPivot(Part, slot="filter"):
    """Drop, in each task, the one attempt that the median baseline is taken from: its credit is 0 by construction.

    Source: MC-GRPO, which samples one attempt more than it trains on, an odd number in all; a run with an even number
    is refused. Choice: of several attempts at the median, the one with the lowest id. A fault may leave an even number:
    then the lower of the middle two is the median.
    """

    def check_attempts(self, attempts: int) -> None:
        """An even number has no one attempt at its median."""
        if attempts % 2 == 0:
            raise ConfigError(
                f"rollout.plan.attempts is {attempts}, but the filter drop_pivot drops the attempt at the median, and "
                f"only an odd number has one; give {attempts + 1} to train on {attempts}"
            )

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
