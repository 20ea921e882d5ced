"""How much the attempts at a task tell about each other, by how much their answers agree: COPO's blending.

Axes: S steps, A attempts, M tasks.
"""

from __future__ import annotations

from typing import Annotated, Literal

import numpy as np
from pydantic import Field

from groupwise.core.parts.part import Part
from groupwise.core.segments import FloatArray, IntArray
from groupwise.core.step_table import StepTable

Number = Annotated[float, Field(allow_inf_nan=False)]


class AnswerBlend(Part):
    """How much the comparison within a task counts, w, against that between tasks: more, the less answers agree.

    H = -sum over answers a of f_a log2 f_a,   f_a the share of the task's attempts that answer a
    soft: w = sigma(gain * (H - midpoint));   soft_forced: 0 where the credit within the task is 0, else soft
    forced: 0 where that credit is 0, else 1;   zero_only: 0 where the return is 0, else 1;   global_only: 0
    """

    mode: Literal["soft_forced", "soft", "forced", "zero_only", "global_only"] = "soft_forced"
    """The rule."""
    gain: Number = 5.0
    """How sharply it changes."""
    midpoint: Number = 1.0
    """The entropy in bits at which both count the same."""
    answers: Annotated[str, Field(min_length=1)] = "answer"
    """The column that says what was answered: the last one that an attempt says."""

    @property
    def reads(self) -> frozenset[str]:
        """The columns that it reads."""
        return frozenset({self.answers}) if self.mode.startswith("soft") else frozenset()

    def weigh(self, table: StepTable, local: FloatArray) -> FloatArray:
        """w of each step, given its credit within the task (S)."""
        if self.mode == "global_only":
            return np.zeros(len(table))
        if self.mode in ("forced", "zero_only"):
            counted: FloatArray = local if self.mode == "forced" else table.episode_return
            return np.where(counted != 0, 1.0, 0.0)
        soft = 0.5 * (1 + np.tanh(self.gain * (self.measure_entropy(table)[table.task] - self.midpoint) / 2))
        return np.where(local == 0, 0.0, soft) if self.mode == "soft_forced" else soft

    def measure_entropy(self, table: StepTable) -> FloatArray:
        """Entropy of the answers of each task in bits (M); attempts without an answer have one in common."""
        answers: list[str | None] = [None] * len(table.attempts)
        for attempt, answer in zip(table.attempt.tolist(), table.column(self.answers), strict=True):
            answers[attempt] = answers[attempt] if answer in (None, "") else str(answer)
        task_A = table.task[table.attempts.first].tolist()
        counts: dict[int, dict[str | None, int]] = {}
        for task, answer in zip(task_A, answers, strict=True):
            of_task = counts.setdefault(task, {})
            of_task[answer] = of_task.get(answer, 0) + 1
        return np.array([_find_entropy(np.array(sorted(counts[task].values()))) for task in range(len(counts))])


def _find_entropy(counts: IntArray) -> float:
    share = counts / counts.sum()
    return float(-(share * np.log2(share)).sum()) + 0.0
