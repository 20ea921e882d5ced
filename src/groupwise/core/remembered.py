"""What stateful parts remember of tasks: a number, or a row of numbers by the index of a step.

Axes: M tasks, S steps.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from groupwise.core.segments import FloatArray, IntArray

Remembered = float | list[float]
"""Of one task: a number, or one for each index of a step. The last of a row is for all later steps too."""


def number_at(remembered: Remembered, index: int) -> float:
    """What is remembered for a step at this index of an attempt at the task."""
    return remembered[min(index, len(remembered) - 1)] if isinstance(remembered, list) else remembered


def spread_remembered(by_task: Sequence[Remembered], task: IntArray, index: IntArray) -> FloatArray:
    """Hand each step what is remembered for it.

    Args:
        by_task: of each task (M).
        task: number of each step's task (S).
        index: index of each step within its attempt (S).
    """
    if not any(isinstance(remembered, list) for remembered in by_task):
        return np.array(by_task, dtype=np.float64)[task]
    pairs = zip(task.tolist(), index.tolist(), strict=True)
    return np.array([number_at(by_task[number], place) for number, place in pairs], dtype=np.float64)
