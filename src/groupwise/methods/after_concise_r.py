from __future__ import annotations

import math
from collections.abc import Sequence
from typing import ClassVar, Literal

from groupwise.credit import DropFailed, ZeroSpread, pay_last
from groupwise.data.records import Trajectory, score_of
from groupwise.losses import Clip, EntropyBonus, PolicyLoss, TokenMean
from groupwise.methods.grpo import grpo
from groupwise.methods.method import method
from groupwise.parts import Algorithm, Count, Finite, Part


@method
def after_concise_r(
    *, stage: Literal[1, 2] = 2, limit: Count = 1000, scale: Literal["limit", "group"] = "limit"
) -> Algorithm:
    """After ConciseR (ours; arXiv:2505.21178 of 2025 has the stages): GRPO that shortens answers to solved tasks.

    stage 2:  R_i = 1 - L_i / limit where all rollouts at a task are right, else as it was;   A_i = as for GRPO

    Choices: that lengths count only in solved groups is the paper's; the length reward is ours (`concise_when_solved`).
    Train stage 1 first and longer: it has no lengths, drops zero-variance groups and rewards entropy (0.001, ours).
    Stage 2 drops the tasks that no rollout solved, and must not be run with the plan `top_up`. Clip 0.2 below and 0.28
    above, mean over tokens, no KL.
    """
    loss = PolicyLoss(
        surrogate=Clip(low=0.2, high=0.28),
        aggregate=TokenMean(),
        penalties=(EntropyBonus(weight=0.001),) if stage == 1 else (),
    )
    if stage == 1:
        return Algorithm(advantage=grpo().advantage, filters=(ZeroSpread(),), loss=loss)
    return Algorithm(
        advantage=grpo().advantage,
        filters=(DropFailed(),),
        shapers=(ConciseWhenSolved(limit=limit, scale=scale),),
        loss=loss,
    )


class ConciseWhenSolved(Part, slot="shaper"):
    """If all rollouts of a task are right, the reward of each is its length score instead; else returns stay as they
    are.

        all solved:  R_i = 1 - L_i / limit                                               `scale="limit"`
                     R_i = 1 - (L_i - shortest) / (longest - shortest + 1)               `scale="group"`

    L counts the sampled tokens of all steps.

    Source: ours, after the second stage of ConciseR (2025, arXiv:2505.21178), whose length reward was not found.
    Choices: a rollout is right if its score (whether it solved the task, else its reward) reaches `best`. If advantages
    are divided by the standard deviation, `limit` has little effect. Dynamic sampling that drops solved groups is an
    error.
    """

    needs_entropy: ClassVar[bool] = False
    needs_solved_groups: ClassVar[bool] = True
    limit: Count = 1000
    """Tokens of a rollout with reward 0; a longer one gets less."""
    scale: Literal["limit", "group"] = "limit"
    """Whether lengths are relative to the limit or to the group's own range."""
    best: Finite = 1.0
    """The smallest score of a right rollout."""

    def __call__(self, group: Sequence[Trajectory]) -> list[tuple[float, ...]]:
        enough = self.best - 1e-9 * max(1.0, abs(self.best))
        if not all(trajectory.steps and score_of(trajectory) >= enough for trajectory in group):
            return [pay_last(trajectory, 0.0) for trajectory in group]
        lengths = [sum(len(step.response_ids) for step in trajectory.steps) for trajectory in group]
        shortest, width = min(lengths), max(lengths) - min(lengths) + 1
        shaped = []
        for trajectory, length in zip(group, lengths, strict=True):
            earned = math.fsum(step.reward + step.shaped for step in trajectory.steps)
            due = 1 - length / self.limit if self.scale == "limit" else 1 - (length - shortest) / width
            shaped.append(pay_last(trajectory, due - earned))
        return shaped
