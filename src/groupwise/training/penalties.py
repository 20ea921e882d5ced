"""Whether penalties alone made an update's credit: nobody earned anything, and what differs is what was taken away."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from groupwise.core.algorithm import Algorithm
from groupwise.core.records import Trajectory
from groupwise.core.step_table import StepTable
from groupwise.training.samples import Credited


def rests_on_penalties(algorithm: Algorithm, credit: Credited, *, version: int) -> bool:
    """Whether the credit that trains lies in tasks at which nobody earned anything, and is gone without penalties.

    The second is tried: the same attempts, every step accepted and paid 0, are given credit again. So a method that
    makes something of failure by itself (a made-up success to compare with) is not taken for penalties. `version` is
    the learner's.
    """
    trains = (credit.values != 0) & credit.keep
    if not trains.any() or (trains & ~credit.unearned).any():
        return False
    if any(step.shaped for one in credit.trajectories for step in one.steps):
        return False
    try:
        bare = algorithm.credit(StepTable.from_trajectories(_without_penalties(credit.trajectories), version=version))
    except Exception:  # a part from elsewhere may refuse what was never played; that must not end the run
        return False
    return not (bare.values * credit.keep).any()


def _without_penalties(trajectories: Sequence[Trajectory]) -> list[Trajectory]:
    return [
        replace(one, steps=tuple(replace(step, reward=0.0, valid=True) for step in one.steps)) for one in trajectories
    ]
