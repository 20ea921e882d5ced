"""Rewards that judge how well the task was done."""

from __future__ import annotations

import math
from typing import ClassVar

from groupwise.core.errors import RecordError
from groupwise.core.parts.part import Part
from groupwise.core.records import FAULTS, Trajectory
from groupwise.rewards.reward import Amount


class EnvironmentReward(Part, slot="reward"):
    """The environment's own reward of each step.

    r_t = weight * reward_t
    """

    judges: ClassVar[bool] = True
    weight: Amount = 1.0
    """What it is multiplied by."""

    def __call__(self, trajectory: Trajectory) -> tuple[float, ...]:
        return tuple(self.weight * step.reward for step in trajectory.steps)


class OutcomeReward(Part, slot="reward"):
    """One amount for a solved task, another for a failed one, on the last step.

        r_last = solved if success else failed;   r_t = 0 before

    Source: 10 and 0 are what GiGPO and HGPO train on (Feng et al. 2025, arXiv:2505.10978). It takes the place of the
    reward `environment`, which pays what the environment says. An attempt that a fault ended was never judged: it is
    paid nothing.
    """

    judges: ClassVar[bool] = True
    solved: Amount = 10.0
    """Paid where the environment says that the task was solved."""
    failed: Amount = 0.0
    """Paid where it says that it was not."""

    def __call__(self, trajectory: Trajectory) -> tuple[float, ...]:
        before = (0.0,) * (len(trajectory.steps) - 1)
        if not trajectory.steps or trajectory.stop in FAULTS:
            return (0.0,) * len(trajectory.steps)
        if "success" not in trajectory.scores:
            raise RecordError(
                f"task {trajectory.task.id!r}, attempt {trajectory.attempt}: the environment did not say whether the "
                "task was solved, which reward 'outcome' reads; set `Outcome.success` when an attempt ends, or use "
                "reward 'environment'"
            )
        return (*before, self.solved if trajectory.scores["success"] else self.failed)


class GradedReward(Part, slot="reward"):
    """What the environment paid for an attempt, if that was enough; on the last step.

        r_last = weight * grade if grade >= min_grade, else 0;   grade = sum of the environment's rewards

    Source: ProRAG's reward for an answer, 2 F1 from 0.2 on (arXiv:2601.21912, release). It takes the place of the
    reward `environment`, for worlds that pay answers which are partly right. An attempt that a fault ended was never
    judged: it is paid nothing.
    """

    judges: ClassVar[bool] = True
    weight: Amount = 2.0
    """What the grade is multiplied by."""
    min_grade: Amount = 0.2
    """Grade from which on it is paid."""

    def __call__(self, trajectory: Trajectory) -> tuple[float, ...]:
        if not trajectory.steps or trajectory.stop in FAULTS:
            return (0.0,) * len(trajectory.steps)
        grade = math.fsum(step.reward for step in trajectory.steps)
        return (*(0.0,) * (len(trajectory.steps) - 1), self.weight * grade if grade >= self.min_grade else 0.0)
