"""Recipes for answers that are ranked lists: Rank-GRPO."""

from __future__ import annotations

from typing import Literal

from groupwise.advantages.token_credit import RankCredit
from groupwise.core.algorithm import Algorithm
from groupwise.losses import Clip, Kl, PolicyLoss, SequenceRatio, TokenMean
from groupwise.recipes.episode import grpo
from groupwise.recipes.recipe import Finite, recipe
from groupwise.rollout.measures import ItemTokens


@recipe
def rank_grpo(
    *,
    reward: Literal["exp_inf", "log_decay"] = "exp_inf",
    overflow: Finite = -0.1,
    exact_end: Finite = 0.1,
    early_end: Finite = -0.1,
    kl: Finite = 0.001,
) -> Algorithm:
    """Rank-GRPO (2025, release yaochenzhu/Rank-GRPO): each item of a list is compared, and has a ratio, by its rank.

    A_k = (r_k - mean(r_k)) / (std(r_k) + 1e-4),   w_k = exp(mean over tokens of item k of logp - logp_old), clipped

    Choices: those of the parts `item_tokens` and `rank_credit`; the credit of steps is GRPO's, for reports and for what
    is said around the list. Clip 0.06 below and 0.08 above, mean over tokens, KL 0.001 as k3, as released. The release
    begins from a model that imitated lists; so do runs with a warm start.
    """
    return Algorithm(
        advantage=grpo().advantage,
        token_credit=RankCredit(reward=reward, overflow=overflow, exact_end=exact_end, early_end=early_end),
        measures=(ItemTokens(),),
        loss=PolicyLoss(
            ratio=SequenceRatio(unit="span"),
            surrogate=Clip(low=0.06, high=0.08),
            aggregate=TokenMean(),
            penalties=(Kl(estimator="k3", weight=kl),),
        ),
    )
