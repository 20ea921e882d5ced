"""Recipes that ask a judge about the pieces of an answer or the steps of an attempt: ProRAG, and one after WebSTAR."""

from __future__ import annotations

from typing import Literal

from groupwise.advantages.token_credit import JudgedCredit
from groupwise.core.algorithm import Algorithm
from groupwise.groups import ScoredSteps
from groupwise.losses import Clip, PolicyLoss, TokenMean
from groupwise.recipes.episode import grpo
from groupwise.recipes.recipe import Finite, recipe
from groupwise.rollout.measures import ExpertScore, JudgedSegments


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


@recipe
def after_webstar(*, above: Finite = 5.0) -> Algorithm:
    """After WebSTAR (ours; its filter of steps is published for fine-tuning): GRPO on steps whose judge agrees with it.

    A praised attempt trains on its steps of score > above, a blamed one on those of score <= above;   scores 0 to 10

    Choices: those of the filter `scored_steps`. The source asks a language model for scores; none is here, so the
    environment's expert judges by rule (the measure `expert_score`), and no claim about the published method follows.
    A judge of your own takes its place by `judge_score` with `fact = "step_score"`. Credit and loss are GRPO's; what is
    dropped stays in the prompts of later steps and in its group.
    """
    base = grpo()
    return Algorithm(
        advantage=base.advantage,
        filters=(ScoredSteps(above=above),),
        measures=(ExpertScore(),),
        loss=base.loss,
    )
