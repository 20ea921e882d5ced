"""Ranking rewards: attempts that all failed are ranked by the pattern of their entropies.

Axis: N ranked attempts.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

import numpy as np
from pydantic import Field

from groupwise.core.errors import RecordError
from groupwise.core.parts.part import Part
from groupwise.core.records import StopReason, Trajectory, score_of
from groupwise.core.segments import FloatArray

TOLERANCE = 1e-9
"""Entropies closer than this are equal: sums of the same numbers may differ in their last digit."""


class EntropyRanking(Part, slot="shaper"):
    """Pay failed attempts by rank: exploratory at a few points, sure of themselves elsewhere, comes first.

        peak = mean of the top share p of an attempt's entropies,   overall = mean of all of them
        i beats j  iff  peak_i > peak_j and overall_i < overall_j;   S_i = how many i beats
        reward at rank k of N, by S from above: best * (1 - k / (N - 1));   equal S share the mean of their ranks

    Source: R^3 (2026, arXiv:2601.19620), structural entropy ranking reward; its algorithm ranks responses that were cut
    off (`who="truncated"`), while its abstract also speaks of failed ones. Choices, where the paper is silent: p 0.2;
    best 0.5; N counts the ranked; one ranked attempt alone earns 0, for nothing was compared. A group in which some
    attempt succeeded is left as it is. One departure: attempts that failed without being cut off earn the mean of the
    ranked ones, and nobody anything where the ranks tell nobody apart (`finished="mean"`); at 0, which is the paper's
    letter (`finished="zero"`), being cut off pays by itself. For attempts of many steps `who="failed"` ranks all of
    them (ours), by their tokens' entropies or by their steps' means (`per`). The entropies are those of the policy that
    sampled, when it sampled. How strong the ranking is `best` does not say: divided by the group's own deviation it
    cancels, and counts only beside a recalled success, or under the scale `fixed_unless_solved`.
    """

    p: Annotated[float, Field(gt=0, le=1)] = 0.2
    """Share of the entropies that make up the peak; at least one."""
    best: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 0.5
    """What the first rank is paid; keep it below what a right answer earns."""
    who: Literal["truncated", "failed"] = "truncated"
    """Who is ranked in a group without success: the attempts that a limit cut off, or all."""
    finished: Literal["mean", "zero"] = "mean"
    """What a failed attempt earns that is not ranked: the mean of the ranked ones, so that being cut off is worth
    nothing by itself, or 0, as in the paper."""
    per: Literal["token", "step"] = "token"
    """What an entropy stands for: a token, or the mean over a step."""
    solved_at: float = 0.5
    """Score from which on an attempt counts as right."""

    @property
    def needs_entropy(self) -> bool:
        """Whether the entropies of sampled tokens must be recorded: attempts are ranked by them."""
        return True

    def __call__(self, group: Sequence[Trajectory]) -> list[tuple[float, ...]]:
        amounts = self._pay(group)
        # On the last step, like an outcome: discounting carries it back.
        return [
            (0.0,) * (len(trajectory.steps) - 1) + (amount,) if trajectory.steps else ()
            for trajectory, amount in zip(group, amounts, strict=True)
        ]

    def _pay(self, group: Sequence[Trajectory]) -> list[float]:
        """What each attempt is paid; nothing where some attempt succeeded, or where the ranks tell nobody apart."""
        if any(score_of(trajectory) >= self.solved_at for trajectory in group):
            return [0.0] * len(group)
        ranked = [i for i, trajectory in enumerate(group) if self._is_ranked(trajectory)]
        patterns = [_measure_pattern(self._list_entropies(group[i]), self.p) for i in ranked]
        peaks, overall = np.array([p for p, _ in patterns]), np.array([o for _, o in patterns])
        rewards = compute_ranking_rewards(peaks, overall, best=self.best)
        if self.finished == "mean" and len(set(rewards.tolist())) < 2:
            return [0.0] * len(group)  # all would earn the same, which discounting would turn into a prize for haste
        amounts = [float(rewards.mean()) if self.finished == "mean" else 0.0] * len(group)
        for i, reward in zip(ranked, rewards.tolist(), strict=True):
            amounts[i] = reward
        return amounts

    def _is_ranked(self, trajectory: Trajectory) -> bool:
        if not trajectory.steps:
            return False
        was_cut = trajectory.stop is StopReason.TRUNCATED or trajectory.steps[-1].cut
        return self.who == "failed" or was_cut

    def _list_entropies(self, trajectory: Trajectory) -> list[float]:
        for step in trajectory.steps:
            if len(step.entropy) != len(step.response_ids):
                raise RecordError(
                    f"task {trajectory.task.id!r}, attempt {trajectory.attempt}, step {step.index}: the entropies of "
                    "its sampled tokens were not recorded, by which failed attempts are ranked; use an engine that "
                    "reports them, or leave the shaper out"
                )
        if self.per == "step":
            return [sum(step.entropy) / len(step.entropy) for step in trajectory.steps if step.entropy]
        return [entropy for step in trajectory.steps for entropy in step.entropy]


def compute_ranking_rewards(peak: FloatArray, overall: FloatArray, *, best: float) -> FloatArray:
    """What each of N attempts is paid by the order of dominance (N)."""
    if len(peak) < 2:
        return np.zeros(len(peak))
    beats = (peak[:, None] > peak[None, :] + TOLERANCE) & (overall[:, None] < overall[None, :] - TOLERANCE)
    wins = beats.sum(axis=1)
    better = (wins[None, :] > wins[:, None]).sum(axis=1)
    equal = (wins[None, :] == wins[:, None]).sum(axis=1)
    rank = better + (equal - 1) / 2
    return np.asarray(best * (1 - rank / (len(peak) - 1)), dtype=np.float64)


def _measure_pattern(entropies: Sequence[float], p: float) -> tuple[float, float]:
    """The peak and the overall entropy."""
    if not entropies:
        return 0.0, 0.0
    values = np.sort(np.array(entropies))
    top = max(1, int(np.floor(p * len(values))))
    return float(values[-top:].mean()), float(values.mean())
