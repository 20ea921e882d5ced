"""The census: what is in the file, before anything is compared."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np

from groupwise.core.segments import BoolArray
from groupwise.core.step_table import StepTable


@dataclass(frozen=True, kw_only=True)
class Census:
    """Counts of what was recorded."""

    tasks: int
    """Tasks (or groups, where the file names them)."""
    attempts: int
    """Attempts over all tasks."""
    steps: int
    """Steps over all attempts."""
    attempts_per_task: dict[int, int]
    """How many tasks have how many attempts."""
    mean_return: float
    """Mean return over attempts."""
    lone_tasks: int
    """Tasks with a single attempt: nothing to compare an attempt with."""
    equal_tasks: int
    """Tasks with several attempts that all have the same return: GRPO learns nothing from them."""
    steps_without_state: int
    """Steps whose state is not comparable."""
    malformed_steps: int | None
    """Steps whose response had not the form that was asked for; None = the file does not say."""
    refused_steps: int | None
    """Steps that were not malformed and whose action the environment refused; None = the file does not say."""
    invalid_steps: int | None
    """Steps that were malformed or refused; None = the file does not say."""


class CensusTally:
    """Counts chunk by chunk."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()
        self._sizes: Counter[int] = Counter()
        self._return_sum = 0.0

    def add(self, table: StepTable) -> None:
        """Count one chunk's steps."""
        first = table.attempts.first
        attempts_of_task = np.bincount(table.task[first], minlength=len(table.task_ids))
        equal = table.tasks.is_constant(table.episode_return) & (attempts_of_task > 1)
        self._sizes.update(attempts_of_task.tolist())
        self._return_sum += float(table.episode_return[first].sum())
        self._counts.update(
            tasks=len(table.task_ids),
            attempts=len(first),
            steps=len(table),
            lone_tasks=int(np.sum(attempts_of_task == 1)),
            equal_tasks=int(np.sum(equal)),
            steps_without_state=int(np.sum(table.state < 0)),
        )
        self._counts.update({name: int(np.sum(flawed)) for name, flawed in _find_flawed_steps(table).items()})

    def result(self) -> Census:
        """The counts so far."""
        counts = self._counts
        return Census(
            tasks=counts["tasks"],
            attempts=counts["attempts"],
            steps=counts["steps"],
            attempts_per_task=dict(sorted(self._sizes.items())),
            mean_return=self._return_sum / max(counts["attempts"], 1),
            lone_tasks=counts["lone_tasks"],
            equal_tasks=counts["equal_tasks"],
            steps_without_state=counts["steps_without_state"],
            malformed_steps=counts.get("malformed_steps"),
            refused_steps=counts.get("refused_steps"),
            invalid_steps=counts.get("invalid_steps"),
        )


def _find_flawed_steps(table: StepTable) -> dict[str, BoolArray]:
    """Which steps were malformed, refused, or one of the two, as far as the table says (S)."""
    columns, flawed = table.extra, {}
    if "well_formed" in columns:
        flawed["malformed_steps"] = ~columns["well_formed"]
    if "accepted" in columns:
        flawed["refused_steps"] = ~columns["accepted"] & ~flawed.get("malformed_steps", np.False_)
    if "valid" in columns:
        flawed["invalid_steps"] = ~columns["valid"]
    return flawed
