"""Recipes that look at how tools were used: HDPO."""

from __future__ import annotations

from groupwise.advantages import Deviation, Relative, ToolEconomy
from groupwise.core.algorithm import Algorithm
from groupwise.groups import AmongSolved
from groupwise.losses import Clip, ClippedChannels, PolicyLoss, SequenceMean
from groupwise.recipes.episode import grpo
from groupwise.recipes.recipe import Finite, recipe


@recipe
def hdpo(
    *, tool_weight: Finite = 0.15, calls: str | None = "num_calls", solved_above: Finite = 0.5, eps: Finite = 1e-6
) -> Algorithm:
    """HDPO (Metis, 2026, arXiv:2604.08545, and its release): GRPO, and among the right attempts fewer tool calls win.

    loss = L_clip(A) + tool_weight * L_clip(A_tool);   A_tool = z-score of 1 / (T + 1) among the right, else 0

    Choices: right is a score above `solved_above`. T sums the column `calls`, a fact that environments with tools tell;
    `calls=None` takes every step but the last for a call. The source's reward, 0.9 for a right answer and 0.1 for its
    form, is `outcome` and `format` in `rewards`. Two losses are summed, as released, not one taken of the sum. Clip
    0.2; each answer counts the same (ours); no KL. The plan `top_up` and filters that drop solved tasks are refused:
    there the economy is learnt.
    """
    advantage = grpo(eps=eps).advantage
    if not tool_weight:
        return Algorithm(advantage=advantage, loss=PolicyLoss(surrogate=Clip(), aggregate=SequenceMean()))
    economy = Relative(by=AmongSolved(above=solved_above), of=ToolEconomy(calls=calls), scale=Deviation(eps=eps))
    return Algorithm(
        advantage=advantage,
        channels={"economy": economy},
        loss=PolicyLoss(surrogate=ClippedChannels(weights={"economy": tool_weight}), aggregate=SequenceMean()),
    )
