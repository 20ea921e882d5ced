"""From trajectories and credit to samples: what the learner trains on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from groupwise.core.algorithm import Algorithm
from groupwise.core.history import Recalled
from groupwise.core.records import Trajectory
from groupwise.core.sample import Sample
from groupwise.core.segments import BoolArray, FloatArray
from groupwise.core.step_table import StepTable
from groupwise.core.unearned import find_unearned


@dataclass(frozen=True, eq=False, kw_only=True)
class Credited:
    """The trajectories of an update with the credit of their steps: first the chosen, then the recalled."""

    trajectories: Sequence[Trajectory]
    """All that take part."""
    values: FloatArray
    """Credit of every step, in the order of the steps."""
    compared: BoolArray
    """Whether the step was compared with anybody."""
    keep: BoolArray
    """Whether it may train."""
    unearned: BoolArray
    """Whether it belongs to a task at which nobody earned anything."""

    def of_first(self, num: int) -> tuple[FloatArray, BoolArray, BoolArray]:
        """Credit, whether compared and whether it may train, of the steps of the first so many trajectories."""
        end = sum(len(trajectory.steps) for trajectory in self.trajectories[:num])
        return self.values[:end], self.compared[:end], self.keep[:end]

    def by_trajectory(self) -> list[list[float]]:
        """The credit of each trajectory's steps."""
        ends = np.cumsum([len(trajectory.steps) for trajectory in self.trajectories])
        return [self.values[end - len(t.steps) : end].tolist() for t, end in zip(self.trajectories, ends, strict=True)]


def credited(
    algorithm: Algorithm, chosen: Sequence[Trajectory], recalled: Sequence[Recalled] = (), *, version: int
) -> Credited:
    """Credit of every step, and whether it may train. `version` is the learner's.

    What was recalled is compared with the chosen, unless it keeps the credit that it had.
    """
    # Those that keep their credit come last, whatever order they were recalled in.
    joined = [one.trajectory for one in recalled if one.trajectory and not one.keeps_credit]
    kept = [(one.trajectory, one.credit) for one in recalled if one.trajectory and one.keeps_credit]
    table = StepTable.from_trajectories([*chosen, *joined], version=version)
    credit, stored = algorithm.credit(table), [value for _, values in kept for value in values]
    return Credited(
        trajectories=[*chosen, *joined, *(trajectory for trajectory, _ in kept)],
        values=np.append(credit.values, stored),
        compared=np.append(credit.compared, np.zeros(len(stored), dtype=np.bool_)),
        keep=np.append(algorithm.keep(table), np.ones(len(stored), dtype=np.bool_)),
        unearned=np.append(find_unearned(table)[table.step_of_row], np.zeros(len(stored), dtype=np.bool_)),
    )


def make_samples(credit: Credited) -> list[Sample]:
    """One sample a step, with its credit as the advantage of its tokens; groups are numbered by task."""
    groups = {name: number for number, name in enumerate(dict.fromkeys(t.task.id for t in credit.trajectories))}
    found: list[Sample] = []
    for number, trajectory in enumerate(credit.trajectories):
        for step in trajectory.steps:
            row = len(found)
            found.append(
                Sample(
                    prompt_ids=step.prompt_ids,
                    response_ids=step.response_ids,
                    advantage=float(credit.values[row]),
                    logp_behaviour=step.logp_behaviour,
                    entropy=step.entropy,
                    trajectory=number,
                    step=step.index,
                    group=groups[trajectory.task.id],
                    trains=bool(credit.keep[row]) and bool(step.response_ids),
                    off_policy=trajectory.off_policy,
                )
            )
    return found
