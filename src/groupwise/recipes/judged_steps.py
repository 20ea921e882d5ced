"""Recipes that train on some steps of an attempt alone, by what a judge said of them: after WebSTAR."""

from __future__ import annotations

from groupwise.core.algorithm import Algorithm
from groupwise.groups import ScoredSteps
from groupwise.recipes.episode import grpo
from groupwise.recipes.recipe import Finite, recipe
from groupwise.rollout.measures import ExpertScore


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
