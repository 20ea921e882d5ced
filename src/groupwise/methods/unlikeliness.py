"""The unlikeliness reward: right answers that were unlikely get a larger return.

Axis: N rollouts of a group.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import ClassVar, Literal

import numpy as np

from groupwise.credit import check_recorded
from groupwise.data.records import Trajectory, score_of
from groupwise.parts import Part, Share


class Unlikeliness(Part, slot="shaper"):
    """Reduce each positive return by how likely its rollout was within its group.

        k_i = how many of the group were less likely;   R_i <- R_i * (1 - weight * k_i / N) where R_i > 0

    Source: He et al. 2025 (arXiv:2506.02355) and its release, weight 0.25. Choices: likeliness is the mean log-prob of
    a rollout's tokens, as released; `by="sum"` is the paper's probability of the whole. Equally likely rollouts keep
    their order. A return of 0 or less stays: the source scales right answers, wrong ones have 0 there, and a smaller
    penalty would favour the likely wrong answer. A zero-variance group stays as it is, because there it would only
    reward the unusual. The reduction is distributed over the steps in proportion to their rewards.
    """

    needs_entropy: ClassVar[bool] = False
    weight: Share = 0.25
    """Fraction of its return that the most likely rollout loses."""
    by: Literal["mean", "sum"] = "mean"
    """How the log-probs of a rollout's tokens are combined."""

    def __call__(self, group: Sequence[Trajectory]) -> list[tuple[float, ...]]:
        if len({score_of(trajectory) for trajectory in group}) == 1:
            return [(0.0,) * len(trajectory.steps) for trajectory in group]
        likeliness = []
        for trajectory in group:
            check_recorded(trajectory, "logp_behaviour", "by which rollouts are ranked")
            logps = [logp for step in trajectory.steps for logp in step.logp_behaviour]
            likeliness.append(sum(logps) / (len(logps) or 1) if self.by == "mean" else sum(logps))
        order = np.argsort(likeliness, kind="stable")
        less_likely = np.empty(len(group))
        less_likely[order] = np.arange(len(group))
        factors = (-self.weight * less_likely / len(group)).tolist()
        earned = [tuple(step.reward + step.shaped for step in trajectory.steps) for trajectory in group]
        return [
            tuple(factor * amount if math.fsum(amounts) > 0 else 0.0 for amount in amounts)
            for factor, amounts in zip(factors, earned, strict=True)
        ]
