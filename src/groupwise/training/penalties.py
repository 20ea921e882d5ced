"""Whether penalties alone made an update's credit: nobody earned anything, and what differs is what was taken away."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from groupwise.core.algorithm import Algorithm
from groupwise.core.journal.states import StateBefore
from groupwise.core.parts.stateful import join_columns
from groupwise.core.records import Trajectory
from groupwise.core.step_table import StepTable
from groupwise.training.samples import Credited


def credit_rests_on_penalties(
    algorithm: Algorithm, credit: Credited, *, version: int, states: Sequence[StateBefore] = ()
) -> bool:
    """Whether the credit that trains lies in tasks at which nobody earned anything, and is gone without penalties.

    The second is tried: the same attempts, every step well formed, accepted and paid 0, are given credit again. So a
    method that makes something of failure by itself (a made-up success to compare with) is not taken for penalties.
    `version` is the learner's, `states` what parts remember.
    """
    trains = (credit.values != 0) & credit.keep
    if not trains.any() or (trains & ~credit.unearned).any():
        return False
    if any(step.shaped for one in credit.trajectories for step in one.steps):
        return False
    try:
        unpunished = StepTable.from_trajectories(_without_penalties(credit.trajectories), version=version)
        credit_left = algorithm.credit(join_columns(unpunished, states))
    except Exception:  # a part from elsewhere may refuse what was never played; that must not end the run
        return False
    return not (credit_left.values * credit.keep).any()


def _without_penalties(trajectories: Sequence[Trajectory]) -> list[Trajectory]:
    unpunished: dict[str, Any] = {"reward": 0.0, "well_formed": True, "accepted": True, "recorded_valid": None}
    return [replace(one, steps=tuple(replace(step, **unpunished) for step in one.steps)) for one in trajectories]
