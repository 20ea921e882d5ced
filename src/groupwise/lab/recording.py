"""What is held against the truth: many updates of recorded attempts, and the true advantage of their steps."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from groupwise.core.records import Trajectory, score_of
from groupwise.core.segments import BoolArray, FloatArray, IntArray
from groupwise.rollout.plans.plan import Group


@dataclass(frozen=True, kw_only=True, eq=False)
class Recording:
    """Updates of one policy that does not learn, and what their steps were truly worth.

    Rows are the steps: update by update, group by group, attempt by attempt, in time (N).
    """

    updates: Sequence[Sequence[Group]]
    """The groups of each update."""
    truth: FloatArray
    """True advantage of each step (N); NaN where it is not known."""
    truth_error: FloatArray
    """Standard error of the truth itself (N); 0 where it is exact."""
    point: IntArray
    """Decision point of each step (N): equal numbers = the same task, step, situation and action, and so one truth."""
    situation: IntArray
    """Situation of each step (N): its decision point, whatever was done there."""
    update: IntArray
    """Update of each step (N)."""
    attempts_left_out: int = 0
    """Attempts that a fault ended, which are not among the groups."""
    pairs_left_out: int = 0
    """Pairs of continuations that a fault ended, which the truth does without."""

    @property
    def is_known(self) -> BoolArray:
        """Whether the truth of a step is known (N)."""
        return np.isfinite(self.truth)

    @property
    def attempts(self) -> Iterator[Trajectory]:
        """All attempts, in the order of the rows."""
        return (attempt for groups in self.updates for group in groups for attempt in group)

    def describe(self) -> dict[str, float]:
        """What the policy and the recording are like."""
        scores = [score_of(attempt) for attempt in self.attempts]
        groups = [[score_of(attempt) for attempt in group] for groups in self.updates for group in groups]
        known = self.truth[self.is_known]
        return {
            "success": float(np.mean(scores)),
            "attempts": len(scores),
            "steps": len(self.truth),
            "steps_with_truth": len(known),
            "steps_of_attempt": len(self.truth) / len(scores),
            "groups_with_spread": float(np.mean([len(set(group)) > 1 for group in groups])),
            "truth_size": _root_mean_square(known),
            "truth_error": _root_mean_square(self.truth_error[self.is_known]),
            "attempts_left_out": self.attempts_left_out,
            "pairs_left_out": self.pairs_left_out,
        }


def _root_mean_square(values: FloatArray) -> float:
    """The root of the mean square; NaN where there is nothing."""
    return float(np.sqrt(np.mean(values**2))) if values.size else float("nan")


def number_updates(updates: Sequence[Sequence[Group]]) -> IntArray:
    """The update of each step (N)."""
    lengths = [sum(len(attempt.steps) for group in groups for attempt in group) for groups in updates]
    return np.repeat(np.arange(len(updates)), lengths)
