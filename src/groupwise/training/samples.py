"""From trajectories and credit to samples: what the learner trains on."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from groupwise.core.algorithm import Algorithm
from groupwise.core.credit import Credit
from groupwise.core.records import Trajectory
from groupwise.core.sample import Sample
from groupwise.core.segments import BoolArray, FloatArray
from groupwise.core.step_table import StepTable


def credited(algorithm: Algorithm, trajectories: Sequence[Trajectory], *, version: int) -> tuple[Credit, BoolArray]:
    """Credit of every step, and whether it may train; in the order of the steps. `version` is the learner's."""
    table = StepTable.from_trajectories(trajectories, version=version)
    return algorithm.advantage(table), algorithm.keep(table)


def make_samples(trajectories: Sequence[Trajectory], values: FloatArray, keep: BoolArray) -> list[Sample]:
    """One sample a step, with its credit as the advantage of its tokens."""
    groups = {name: number for number, name in enumerate(dict.fromkeys(t.task.id for t in trajectories))}
    found: list[Sample] = []
    for number, trajectory in enumerate(trajectories):
        for step in trajectory.steps:
            row = len(found)
            found.append(
                Sample(
                    prompt_ids=step.prompt_ids,
                    response_ids=step.response_ids,
                    advantage=float(values[row]),
                    logp_behaviour=step.logp_behaviour,
                    entropy=step.entropy,
                    trajectory=number,
                    step=step.index,
                    group=groups[trajectory.task.id],
                    trains=bool(keep[row]) and bool(step.response_ids),
                )
            )
    return found


def credit_by_trajectory(trajectories: Sequence[Trajectory], values: FloatArray) -> list[list[float]]:
    """The credit of each trajectory's steps."""
    ends = np.cumsum([len(trajectory.steps) for trajectory in trajectories])
    return [values[end - len(t.steps) : end].tolist() for t, end in zip(trajectories, ends, strict=True)]
