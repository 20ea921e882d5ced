"""Rewards that judge how well the task was done."""

from __future__ import annotations

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
