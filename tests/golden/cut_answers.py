"""Rollouts of one response, cut off or not, for vectors of R^3 that are worked out to four decimals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from groupwise import Step, StopReason, Task, Trajectory

FOUR_DECIMALS = 5.1e-5


def near(expected: Sequence[float]) -> object:
    return pytest.approx(list(expected), abs=FOUR_DECIMALS, rel=0)


def answer(rollout: int, reward: float = 0.0, *, entropy: Sequence[float] = (0.0,), cut: bool = True) -> Trajectory:
    """A rollout of one response."""
    ids = (7,) * len(entropy)
    step = Step(index=0, reward=reward, prompt_ids=(1,), response_ids=ids, logp_behaviour=(-1.0,) * len(ids))
    return Trajectory(
        id=f"t/{rollout}",
        task=Task(id="t"),
        rollout=rollout,
        steps=(replace(step, entropy=tuple(entropy), cut=cut),),
        scores={"success": reward},
        stop=StopReason.TERMINATED,
        versions=(0,),
    )
