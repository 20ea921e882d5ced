"""A signal, less what earlier updates lead one to expect of its task: a baseline that remembers.

Axes: S steps, A attempts, M tasks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import numpy as np
from pydantic import Field

from groupwise.credit.signals import EpisodeReturn
from groupwise.data.column_checks import to_numbers
from groupwise.data.records import Task, Trajectory
from groupwise.data.segments import FloatArray, Segments
from groupwise.data.step_table import StepTable
from groupwise.parts.part import Part
from groupwise.parts.slots import SignalPart
from groupwise.parts.stateful import ObservedUpdate
from groupwise.system.errors import RecordError


class AbovePrior(Part, slot="signal"):
    """Another signal, less the task's prior: a running mean of what attempts of earlier updates brought.

        signal = of - prior
        prior  <- (keep * weight * prior + sum of the attempts' values) / (keep * weight + attempts)
        weight <- keep * weight + attempts

    Source: SPO (single-stream policy optimisation, arXiv:2509.13232), whose tracker for returns of 0 and 1 this is:
    weight * prior and weight * (1 - prior) are its alpha and beta, and the prior is used before the new return joins.
    With it a task needs one attempt only, as `Relative` with `no_baseline` compares with nobody.

    **Choices.** `keep` is a constant; the source makes it of how far the policy moved since, within 0.875 and 0.96. A
    task forgets when it is attempted, and once an update, however many attempts it got. An attempt counts with the mean
    of `of` over its steps, as the environment and the rewards gave it, before shaping. A task that was never attempted
    has `first_level`, and so has one with guidance in its prompt, which is another task. Attempts that took no part in
    an update count too, unless `of` reads what a measure found: nobody measured those.
    """

    of: SignalPart = EpisodeReturn()
    """What is compared with the prior."""
    keep: Annotated[float, Field(ge=0, le=1)] = 0.96
    """How much of the past still counts when a task is attempted again; 1 = all of it, for ever."""
    first_level: Annotated[float, Field(allow_inf_nan=False)] = 0.5
    """The prior of a task that was never attempted."""
    first_weight: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 1.0
    """How many attempts that first prior counts for."""
    column: Annotated[str, Field(min_length=1)] = "prior"
    """What the step table calls the prior; two such parts that differ need two names."""

    def __call__(self, table: StepTable) -> FloatArray:
        return table.ask_once(self.of) - to_numbers(self.column, table.column(self.column))

    def start(self, *, seed: int) -> TaskPriors:
        return TaskPriors(self)


class TaskPriors:
    """The running mean of each task that was attempted, and how many attempts it counts for."""

    def __init__(self, part: AbovePrior) -> None:
        self._part = part
        self._tasks: dict[str, tuple[float, float]] = {}

    def columns(self, tasks: Sequence[Task]) -> dict[str, FloatArray]:
        return {self._part.column: np.array([self._find_prior(task.id)[0] for task in tasks], dtype=np.float64)}

    def observe(self, update: ObservedUpdate) -> None:
        try:
            self._join(update.trajectories)
        except RecordError:  # `of` reads what a measure found, which only those have that took part
            pairs = zip(update.trajectories, update.credit, strict=True)
            self._join([trajectory for trajectory, credit in pairs if credit is not None])

    def _join(self, trajectories: Sequence[Trajectory]) -> None:
        if not trajectories:
            return
        table = StepTable.from_trajectories(trajectories)
        values = table.attempts.mean(table.ask_once(self._part.of))
        tasks = Segments.of(table.task[table.attempts.first])
        for task, total, num in zip(table.task_ids, tasks.sum(values).tolist(), tasks.size.tolist(), strict=True):
            level, weight = self._find_prior(str(task))
            kept = self._part.keep * weight
            self._tasks[str(task)] = (kept * level + total) / (kept + num), kept + num

    def state_dict(self) -> dict[str, Any]:
        return {"tasks": {task: list(prior) for task, prior in self._tasks.items()}}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._tasks = {task: (float(level), float(weight)) for task, (level, weight) in state["tasks"].items()}

    def _find_prior(self, task: str) -> tuple[float, float]:
        return self._tasks.get(task, (self._part.first_level, self._part.first_weight))
