"""Recipes that read what a judge says of the pieces of answers: ProRAG, BCPG-NSA."""

from __future__ import annotations

from typing import Literal

from groupwise.advantages.token_credit import JudgedCredit, SparedSegments
from groupwise.core.algorithm import Algorithm
from groupwise.groups import ZeroSpread
from groupwise.losses import Clip, PolicyLoss, Reinforce, SequenceMean, SquaredDrift, TokenMean
from groupwise.recipes.episode import dr_grpo, grpo
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
