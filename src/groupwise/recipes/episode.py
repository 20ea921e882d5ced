"""Recipes that give a whole attempt one number: GRPO and its nearest relatives."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from groupwise.advantages import (
    Bounded,
    Deviation,
    EpisodeReturn,
    LeaveOneOut,
    Median,
    MedianAbsoluteDeviation,
    NoBaseline,
    NoScale,
    Relative,
    ReturnToGo,
    Whitened,
)
from groupwise.core.algorithm import Algorithm
from groupwise.groups import ByTask, DropPivot, DropSolved
from groupwise.losses import (
    Clip,
    ConstantLength,
    Kl,
    PolicyLoss,
    SequenceMean,
    SequenceRatio,
    TokenMean,
    TrajectoryMean,
)
from groupwise.recipes.kl_in_reward import take_kl_off_answers, take_kl_off_tokens
from groupwise.recipes.recipe import Finite, Share, recipe

Average = Literal["attempt", "step"]
Alone = Literal["zero", "raw", "error"]


@recipe
def grpo(
    *, ddof: Literal[0, 1] = 1, eps: Finite = 1e-6, average: Average = "attempt", alone: Alone = "zero"
) -> Algorithm:
    """GRPO (Shao et al. 2024, arXiv:2402.03300): an attempt is compared with the other attempts at its task.

    A_i = (R_i - mean(R)) / (std(R) + eps);   loss = mean over answers, then tokens, of (clipped -A * rho + b * k3)

    Choices: sample deviation and eps 1e-6, as verl computes it (TRL: 1e-4). Each attempt counts once, however many
    steps it has; `average="step"` counts it once a step. A task with one attempt gets 0; `alone="raw"` gives it R, as
    verl does. Clip 0.2, without the second bound 3 that verl puts on a negative A (`surrogate.dual` of the loss);
    b = 0.001 (DeepSeek-R1), where published recipes range to 0.04 and TRL's default is 0.
    """
    return Algorithm(
        advantage=Relative(
            by=ByTask(), of=EpisodeReturn(), scale=Deviation(ddof=ddof, eps=eps), average=average, alone=alone
        ),
        loss=PolicyLoss(surrogate=Clip(), aggregate=SequenceMean(), penalties=(Kl(estimator="k3", weight=0.001),)),
    )


@recipe
def dr_grpo(*, average: Average = "attempt", alone: Alone = "zero") -> Algorithm:
    """Dr. GRPO (Liu et al. 2025, arXiv:2503.20783): GRPO without the division by the deviation.

    A_i = R_i - mean(R);   loss = sum over tokens of clipped -A * rho / (answers * most tokens of an answer)

    Choices: credit as for GRPO. Clip 0.2, no KL. The divisor is TRL's, with the number of answers; verl leaves it out.
    """
    return Algorithm(
        advantage=Relative(by=ByTask(), of=EpisodeReturn(), scale=NoScale(), average=average, alone=alone),
        loss=PolicyLoss(surrogate=Clip(), aggregate=ConstantLength()),
    )


@recipe
def rloo(*, average: Average = "attempt", alone: Alone = "zero", kl_in_reward: Finite = 0.0) -> Algorithm:
    """RLOO (Ahmadian et al. 2024, arXiv:2402.14740): an attempt against the mean of the *other* attempts at its task.

    A_i = R_i - mean_{j != i}(R_j) = n / (n - 1) * (R_i - mean(R));   ratio of an answer = product over its tokens

    Choices: a task with one attempt gets 0. The answer is that of a step; its ratio is clipped at 0.2, as in TRL. TRL
    takes 0.03 times the KL to the reference off the reward; `kl_in_reward=0.03` does that (the measure
    `reference_score` and the shaper `reference_kl`, one forward pass more), and the default leaves it out. The penalty
    `kl` of the loss with `estimator = "k2"` has the gradient of the same KL.
    """
    return Algorithm(
        advantage=Relative(
            by=ByTask(),
            of=EpisodeReturn(),
            baseline=LeaveOneOut(),
            scale=NoScale(),
            average=average,
            alone=alone,
        ),
        loss=PolicyLoss(ratio=SequenceRatio(length="sum"), surrogate=Clip(), aggregate=SequenceMean()),
        **take_kl_off_answers(kl_in_reward),
    )


@recipe
def reinforce_pp(*, gamma: Share = 1.0, eps: Finite = 1e-8, kl_in_reward: Finite = 0.0) -> Algorithm:
    """REINFORCE++ (Hu 2025, arXiv:2501.03262): returns whitened over all tokens of the batch; no groups.

    A_t = (R_t - mean_tok(R)) / sqrt(var_tok(R) + eps)

    Choices: over several steps, R_t is the return-to-go. Tasks mix by design; a lone attempt still gets a signal.
    Tokens that filters drop do not count. The source takes a KL to the reference off each token's reward, and so does
    `kl_in_reward=0.01`: then R_t is the return of the token (`token_return`), discounted by `gamma` from token to token
    where it is else from step to step; the default leaves it out. Clip 0.2, mean over tokens.
    """
    returns = Relative(
        by=ByTask(),
        of=ReturnToGo(gamma=gamma),
        baseline=NoBaseline(),
        scale=NoScale(),
        average="step",
        alone="raw",
    )
    return Algorithm(
        advantage=Whitened(of=returns, eps=eps),
        loss=PolicyLoss(surrogate=Clip(), aggregate=TokenMean()),
        **take_kl_off_tokens(kl_in_reward, gamma=gamma, eps=eps),
    )


@recipe
def reinforce_pp_baseline(*, eps: Finite = 1e-8) -> Algorithm:
    """REINFORCE++ with baseline (Hu 2025, arXiv:2501.03262): Dr. GRPO's credit, whitened over all tokens of the batch.

    A_i = whiten_tok(R_i - mean(R))

    Choices: the mean is over attempts; a task with one attempt enters with 0. The whitening shifts, so an all-correct
    task can get credit that is not 0, as in verl. Loss as for REINFORCE++.
    """
    return Algorithm(advantage=Whitened(of=dr_grpo().advantage, eps=eps), loss=reinforce_pp().loss)


@recipe
def flow_grpo(*, reference: bool = False) -> Algorithm:
    """Flow-GRPO (AgentFlow, Li et al. 2025, arXiv:2510.05592): the outcome, compared by task, goes to every turn.

    A_i = (R_i - mean(R)) / (std(R) + 1e-6) for all turns;   loss = mean over attempts, then turns, then tokens

    Choices: the statistics count each attempt once, as the paper writes; the released code counts every turn, so that
    longer attempts weigh more (`reference=True`). Clip 0.2 below and 0.3 above, KL 0.001 as k3.
    """
    return Algorithm(
        advantage=grpo(average="step" if reference else "attempt").advantage,
        loss=PolicyLoss(
            surrogate=Clip(low=0.2, high=0.3),
            aggregate=TrajectoryMean(within="step"),
            penalties=(Kl(estimator="k3", weight=0.001),),
        ),
    )


@recipe
def mc_grpo(*, eps: Finite = 1e-3, reference: bool = False) -> Algorithm:
    """MC-GRPO (2026, arXiv:2601.22582, and its release): the median as baseline, one attempt more than is trained on.

    A_i = (R_i - median(R)) / (MAD(R) + eps); the attempt at the median is dropped

    Choices: the number of attempts must be odd, one more than is trained on; a run with an even number is refused, and
    where a fault leaves one, the lower of the middle two is the median. With 0/1 rewards and an odd group the median
    distance is always 0 and the released credit is +-1000; where it is under a thousandth of the range we divide by the
    sample deviation. `reference=True` keeps the release. Loss as for GRPO, with the released KL weight 0.04.
    """
    scale = MedianAbsoluteDeviation(eps=eps, fallback=0.0 if reference else 1e-3)
    return Algorithm(
        advantage=Relative(by=ByTask(), of=EpisodeReturn(), baseline=Median(), scale=scale),
        filters=(DropPivot(),),
        loss=PolicyLoss(surrogate=Clip(), aggregate=SequenceMean(), penalties=(Kl(estimator="k3", weight=0.04),)),
    )


@recipe
def ngrpo(
    *, best: Finite = 1.0, virtual: Annotated[int, Field(ge=0)] = 1, eps: Finite = 1e-6, reference: bool = False
) -> Algorithm:
    """NGRPO (github.com/nangongrui-ngr/NGRPO): a made-up perfect attempt in each group, so that all-wrong ones teach.

    A_i = (R_i - mean(R + {best})) / (std(R + {best}) + eps)

    Choices: `best` is what a perfect attempt earns; a return above it is an error. A single attempt is compared with
    the made-up one; the release gives it R (`reference=True`). Tasks that every attempt solved are dropped, as
    released; solved is a score of `best`, by the column `accuracy` where there is one, since a shaped return would hide
    it. Clip 0.16 below and 0.24 above, mean over tokens, no KL.
    """
    credit = Relative(
        by=ByTask(),
        of=Bounded(of=EpisodeReturn(), best=best) if virtual else EpisodeReturn(),
        scale=Deviation(eps=eps),
        alone="raw" if reference else "zero",
        virtual=(best,) * virtual,
        virtual_is_company=not reference,
    )
    return Algorithm(
        advantage=credit,
        filters=(DropSolved(best=best),),
        loss=PolicyLoss(surrogate=Clip(low=0.16, high=0.24), aggregate=TokenMean()),
    )
