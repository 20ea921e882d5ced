"""Recipes that give the tokens of an answer credit by what was recorded of them: GTPO, D3S, DCPO, VERL, Rank-GRPO."""

from __future__ import annotations

import math
from typing import Annotated, Literal

from pydantic import Field

from groupwise.advantages.token_credit import ConflictTokens, DualDownSampling, RankBonus, RankCredit, TemperedCredit
from groupwise.core.algorithm import Algorithm
from groupwise.groups import ZeroSpread
from groupwise.losses import Clip, EntropyBonus, Kl, Plain, PolicyLoss, SequenceMean, SequenceRatio, TokenMean
from groupwise.recipes.episode import dr_grpo, grpo
from groupwise.recipes.recipe import Finite, recipe
from groupwise.rollout.measures import EffectiveRank, ItemTokens, TemperedScore

LN_2 = math.log(2)
PartOfAll = Annotated[float, Field(gt=0, le=1)]


@recipe
def gtpo(*, boost: Finite = 2.0, entropy_weight: Finite = 0.1, max_entropy: Finite = LN_2) -> Algorithm:
    """GTPO (2025, arXiv:2508.03772): tokens that good and bad answers share are praised in the good, spared in the bad.

    A_t = delta * (R - mean(R) - entropy_weight * H) * lambda_t,   lambda_t = boost, 0 or 1;   delta = 0 where unsure

    Choices: those of the part `conflict_tokens`; formula of the code's readme, ln 2 for the largest mean entropy H.
    Groups whose attempts all did equally well are dropped, where the formula would push every answer down. No clip, no
    KL, no reference; each answer counts the same. The source makes one update a batch, so its ratios are all 1; with
    minibatches or more passes, ours are the real ratios, and nothing clips them.
    """
    return Algorithm(
        advantage=dr_grpo().advantage,
        filters=(ZeroSpread(),),
        token_credit=ConflictTokens(boost=boost, entropy_weight=entropy_weight, max_entropy=max_entropy),
        loss=PolicyLoss(surrogate=Plain(), aggregate=SequenceMean()),
    )


@recipe
def d3s(
    *,
    first_samples: PartOfAll = 0.25,
    last_samples: PartOfAll = 1.0,
    first_tokens: PartOfAll = 0.2,
    last_tokens: PartOfAll = 1.0,
    updates: Annotated[int, Field(ge=1)] = 100,
) -> Algorithm:
    """D3S (2025, arXiv:2509.22115, from notes): GRPO on varied answers, and their tokens of most credit times entropy.

    N = share of the answers with the largest Var(A),   K = share of their tokens;   (1 - p) * first + p * last

    Choices: those of the part `dual_down_sampling`; the shares are ours, since the paper's were not found. Credit is
    GRPO's over all attempts and is not compared again. Clip 0.2, mean over the tokens that are left; no KL.
    """
    return Algorithm(
        advantage=grpo().advantage,
        token_credit=DualDownSampling(
            first_samples=first_samples,
            last_samples=last_samples,
            first_tokens=first_tokens,
            last_tokens=last_tokens,
            updates=updates,
        ),
        loss=PolicyLoss(surrogate=Clip(), aggregate=TokenMean()),
    )


@recipe
def dcpo(*, target: Finite = 0.5, hot: Finite = 1.2, cold: Finite = 0.8) -> Algorithm:
    """DCPO (2025, release 597358816/DCPO): GRPO whose right answers pull the entropy to a level by a second ratio.

    A_t = (1 - w) * A + w * c * exp(logp^T_t - logp_t),   w = a / (1 + a),   a = min(|target - H|, 0.1) / share right

    Choices: those of the parts `tempered_score` and `tempered_credit`; where no answer is right, w = 0. A is GRPO's.
    The released script has target 0.5, its best result 0.25. Clip 0.2 with the dual bound 3, mean over tokens, no KL.
    """
    return Algorithm(
        advantage=grpo().advantage,
        token_credit=TemperedCredit(target=target),
        measures=(TemperedScore(hot=hot, cold=cold),),
        loss=PolicyLoss(surrogate=Clip(dual=3.0), aggregate=TokenMean()),
    )


@recipe
def verl(
    *,
    stride: Annotated[int, Field(ge=1)] = 40,
    gain: Finite = 2.0,
    kappa: Finite = 2.0,
    new_share: PartOfAll = 0.3,
    weight: Finite = 1.0,
    placement: Literal["all", "last"] = "all",
) -> Algorithm:
    """VERL (2025, arXiv:2509.23808, and code; not the trainer verl): a bonus for states that spread or spread faster.

    A' = A + min([Phi]_+, |A| / kappa),   Phi = beta * tanh(u_rank) + (1 - beta) * tanh(u_velocity),   A of GRPO
    beta = sigmoid(gain * u_acceleration),   u = (value - M) / |M|, M a moving average over updates

    Choices: those of the parts `effective_rank` and `rank_bonus`: the bonus is on all tokens, where the release puts it
    on the last, and the first update has none. Clip 0.2, mean over tokens, KL 0.001 and entropy bonus 0.001 as in the
    released script; its groups have 4 answers. `stride` is for answers of hundreds of tokens: a short one needs less.
    """
    return Algorithm(
        advantage=grpo().advantage,
        token_credit=RankBonus(weight=weight, gain=gain, kappa=kappa, new_share=new_share, placement=placement),
        measures=(EffectiveRank(stride=stride),),
        loss=PolicyLoss(
            surrogate=Clip(),
            aggregate=TokenMean(),
            penalties=(Kl(estimator="k3", weight=0.001), EntropyBonus(weight=0.001)),
        ),
    )


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
