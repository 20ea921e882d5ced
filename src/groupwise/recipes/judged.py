"""Recipes that read what a judge says of pieces of answers or of steps: ProRAG, BCPG-NSA, and one after WebSTAR."""

from __future__ import annotations

from typing import Literal

from groupwise.advantages.token_credit import JudgedCredit, SparedSegments
from groupwise.core.algorithm import Algorithm
from groupwise.groups import ScoredSteps, ZeroSpread
from groupwise.losses import Clip, PolicyLoss, Reinforce, SequenceMean, SquaredDrift, TokenMean
from groupwise.recipes.episode import dr_grpo, grpo
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
    """ProRAG (2026, arXiv:2601.21912, code): GRPO, and how each step was judged against the group.

    A_t = (R - mean(R)) / (std(R) + 1e-4) + weight * (s_t - mean(s)) / std(s),   s = sigmoid(score of the step)

    Choices: those of the parts `judged_segments` and `judged_credit`; mean and std of s are over all tokens of the
    group (`per="segment"` counts each step once). The source trains a process reward model to give the scores; here
    `algorithm.judge` gives them, and a run file has to name one: in the tests and in the example it is a rule. Its
    outcome reward is `graded` and `format` (kept = 1, broken = -1, per = "whole") in `rewards`. Every response is a
    step, unless `separators` cut it. Clip 0.2 and the mean over tokens, without KL, are ours; its bound on ratios is
    left out.
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


@recipe
def bcpg_nsa(
    *, beta: Finite = 0.5, tau: Finite = 1e-3, right_above: Finite = 0.5, separators: tuple[str, ...] = ("\n\n",)
) -> Algorithm:
    """BCPG-NSA (2025, arXiv:2505.14403, from notes): REINFORCE that blames the right steps of wrong answers less.

    loss = mean over answers, then tokens, of -beta_t * (R - mean(R)) * logp, + tau / 2 * (sum_t logp - logp_old)^2 / n
    beta_t = beta where the answer is bad and the token's step was judged right, else 1

    Choices: those of the parts `judged_segments`, `spared_segments` and `squared_drift`. The source goes several times
    over answers that were sampled once, and has a model and a process reward model agree on each step, cut by a learned
    segmenter; here answers are sampled anew each update, steps end with a blank line, and `algorithm.judge` decides,
    which a run file has to name: in the tests and in the example it is a rule. Tasks whose attempts all did equally
    well are dropped. logp_old is the engine's, as for `opmd`; there is no ratio and no clip.
    """
    return Algorithm(
        advantage=dr_grpo().advantage,
        filters=(ZeroSpread(),),
        token_credit=SparedSegments(beta=beta, right_above=right_above),
        measures=(JudgedSegments(separators=separators),),
        loss=PolicyLoss(
            surrogate=Reinforce(), aggregate=SequenceMean(), penalties=(SquaredDrift(weight=tau),), old="engine"
        ),
    )
