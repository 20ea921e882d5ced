"""Whether penalties alone made an update's credit: nobody earned anything, and what differs is what was taken away."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from groupwise.core.algorithm import Algorithm
from groupwise.core.parts.stateful import join_columns
from groupwise.core.records import Trajectory
from groupwise.core.step_table import StepTable
from groupwise.training.samples import CreditedBatch


def credit_rests_on_penalties(algorithm: Algorithm, batch: CreditedBatch) -> bool:
    """Whether the credit that trains lies in tasks at which nobody earned anything, and is gone without penalties.

    The second is tried: the same attempts, every step well formed, accepted and paid 0, are given credit again. So a
    method that makes something of failure by itself (a made-up success to compare with) is not taken for penalties.
    """
    trains = (batch.values != 0) & batch.keep
    if not trains.any() or (trains & ~batch.unearned).any():
        return False
    if any(step.shaped for trajectory in batch.trajectories for step in trajectory.steps):
        return False
    try:
        unpunished = StepTable.from_trajectories(_remove_penalties(batch.trajectories), version=batch.version)
        credit_left = algorithm.credit(join_columns(unpunished, batch.states))
    except Exception:  # a part from elsewhere may refuse what was never played; that must not end the run
        return False
    return not (credit_left.values * batch.keep).any()


def _remove_penalties(trajectories: Sequence[Trajectory]) -> list[Trajectory]:
    unpunished: dict[str, Any] = {"reward": 0.0, "well_formed": True, "accepted": True, "recorded_valid": None}
    return [
        replace(trajectory, steps=tuple(replace(step, **unpunished) for step in trajectory.steps))
        for trajectory in trajectories
    ]
