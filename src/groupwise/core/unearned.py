"""Tasks at which nobody earned anything: what credit there is there comes from penalties, or from the method itself.

Axis: S steps.
"""

from __future__ import annotations

import numpy as np

from groupwise.core.segments import BoolArray
from groupwise.core.step_table import StepTable


def find_unearned(table: StepTable) -> BoolArray:
    """Whether each step belongs to a task at which nobody earned anything (S).

    What was earned is the column `accuracy`, what the judges paid, where the table has it; else rewards and outcomes.
    """
    if "accuracy" in table.extra:
        earned = np.abs(np.asarray(table.extra["accuracy"], dtype=np.float64))
    else:
        earned = np.abs(table.reward) + np.abs(table.episode_return)
    return np.asarray((table.tasks.sum(earned) == 0)[table.task])
