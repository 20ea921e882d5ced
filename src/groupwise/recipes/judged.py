"""Recipes that read what a judge says of the pieces of answers: ProRAG."""

from __future__ import annotations

from typing import Literal

from groupwise.advantages.token_credit import JudgedCredit
from groupwise.core.algorithm import Algorithm
from groupwise.losses import Clip, PolicyLoss, TokenMean
from groupwise.recipes.episode import grpo
from groupwise.recipes.recipe import Finite, recipe
from groupwise.rollout.measures import JudgedSegments


@recipe
def prorag(
    *,
    weight: Finite = 0.3,
    per: Literal["token", "segment"] = "token",
    step_format: Literal["off", "intended"] = "off",
    separators: tuple[str, ...] = (),
) -> Algorithm:
    """ProRAG (2026, arXiv:2601.21912, code): GRPO, and how each step was judged against all steps of the group.

    A_t = (R - mean(R)) / (std(R) + 1e-4) + weight * (s_t - mean(s)) / std(s),   s = sigmoid(score of the step)

    Choices: those of the parts `judged_segments` and `judged_credit`. The source trains a process reward model to give
    the scores; here `algorithm.judge` gives them, and a run file has to name one: in the tests and in the example it is
    a rule. Its outcome reward is `graded` and `format` (per = "whole") in `rewards`. Every response is a step, unless
    `separators` cut it. Clip 0.2 and the mean over tokens, without KL, are ours; its bound on ratios is left out.
    """
    return Algorithm(
        advantage=grpo(eps=1e-4).advantage,
        token_credit=JudgedCredit(weight=weight, per=per, step_format=step_format),
        measures=(JudgedSegments(separators=separators),),
        loss=PolicyLoss(surrogate=Clip(), aggregate=TokenMean()),
    )
