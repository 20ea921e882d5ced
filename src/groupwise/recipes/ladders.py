"""Recipes for rewards that come in stages: SRPO's graded answers, and brevity once everybody is right."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from groupwise.advantages import PassAtBonus, Sum, Term
from groupwise.core.algorithm import Algorithm
from groupwise.groups import DropFailed, ZeroSpread
from groupwise.losses import Clip, EntropyBonus, Kl, PolicyLoss, TokenMean
from groupwise.recipes.episode import grpo
from groupwise.recipes.recipe import Finite, recipe
from groupwise.rewards import ConciseWhenSolved


@recipe
def srpo(*, k: Annotated[int, Field(ge=1)] = 4, best: Finite = 1.0) -> Algorithm:
    """SRPO (GREAM, 2025, arXiv:2510.20815, and its release): GRPO on graded answers, with a bonus for exact ones.

    A_i = (R_i - mean(R)) / (std(R) + 1e-6) + bonus_i;   bonus = what a hit adds to pass@k, see `pass_at_bonus`

    Choices: an attempt is exact where its return reaches `best`. The source's graded reward is the reward `ladder` of a
    run file, over facts of the environment; its dynamic sampling is the plan `top_up`. Clip 0.2 with a dual bound of
    10, mean over tokens, KL 0.001. Where no attempt is exact, or too many are, it is GRPO.
    """
    return Algorithm(
        advantage=Sum(terms=(Term(weight=1.0, of=grpo().advantage), Term(weight=1.0, of=PassAtBonus(k=k, best=best)))),
        loss=PolicyLoss(surrogate=Clip(dual=10.0), aggregate=TokenMean(), penalties=(Kl(weight=0.001),)),
    )


@recipe
def after_concise_r(
    *, stage: Literal[1, 2] = 2, limit: Annotated[int, Field(ge=1)] = 1000, scale: Literal["limit", "group"] = "limit"
) -> Algorithm:
    """After ConciseR (ours; arXiv:2505.21178 of 2025 has the stages): GRPO that shortens what everybody gets right.

    stage 2:  R_i = 1 - L_i / limit where all attempts at a task are right, else as it was;   A_i = as for GRPO

    Choices: that lengths count only in solved groups is the paper's, the length reward is ours (`concise_when_solved`).
    Stage 1, to be trained first and longer, has no lengths, drops tasks without a difference and rewards entropy
    (0.001, ours); stage 2 drops the tasks that nobody solved, and must not be run with the plan `top_up`. Clip 0.2
    below and 0.28 above, mean over tokens, no KL.
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
