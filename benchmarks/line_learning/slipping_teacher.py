"""Worked sums with a teacher that slips: whoever imitates it knows how to work a sum and has something to learn."""

from __future__ import annotations

import numpy as np

from benchmarks.line_credit.slipping_policy import SlippingPolicy
from groupwise.data.records import Task
from groupwise.data.seeds import seed_of
from groupwise.envs import WorkedSums
from groupwise.envs.small.worked_sums import WorkedSumsEnvironment, write_answer

TEACHER = SlippingPolicy(slip=0.2, slip_at_carry=0.4, slip_in_copying=0.05)


class SlippingSums(WorkedSums, slot="env"):
    """The same tasks; `expert` works them as `SlippingPolicy` does, so that a warm start imitates its slips."""

    teacher_seed: int = 0
    """Root of the slips: with another one, the teacher slips elsewhere."""

    def open(self, task: Task) -> SlippingSumsEnvironment:
        return SlippingSumsEnvironment(task, self)


class SlippingSumsEnvironment(WorkedSumsEnvironment):
    """One rollout at a sum, with a teacher that slips."""

    __slots__ = ("_seed",)

    def __init__(self, task: Task, part: SlippingSums) -> None:
        super().__init__(task, part)
        self._seed = seed_of(part.teacher_seed, "slips", task.id)

    def expert(self) -> str | None:
        if self._progress.ended:
            return None
        results, total = TEACHER.work(self._terms, (), np.random.default_rng(self._seed))
        return write_answer(self._terms, results, total)
