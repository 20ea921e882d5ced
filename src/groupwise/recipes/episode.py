"""Recipes that give a whole attempt one number: GRPO and its nearest relatives."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from groupwise.advantages import (
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
from groupwise.recipes.recipe import recipe

Average = Literal["attempt", "step"]
Alone = Literal["zero", "raw", "error"]


@recipe
def grpo(
    *, ddof: Literal[0, 1] = 1, eps: float = 1e-6, average: Average = "attempt", alone: Alone = "zero"
) -> Algorithm:
    """GRPO (Shao et al. 2024, arXiv:2402.03300): an attempt is compared with the other attempts at its task.

    A_i = (R_i - mean(R)) / (std(R) + eps)

    Choices: sample deviation and eps 1e-6, as verl computes it (TRL: 1e-4). Each attempt counts once, however many
    steps it has; `average="step"` counts it once a step. A task with one attempt gets 0; `alone="raw"` gives it R, as
    verl does.
    """
    return Algorithm(
        advantage=Relative(
            by=ByTask(), of=EpisodeReturn(), scale=Deviation(ddof=ddof, eps=eps), average=average, alone=alone
        )
    )


@recipe
def dr_grpo(*, average: Average = "attempt", alone: Alone = "zero") -> Algorithm:
    """Dr. GRPO (Liu et al. 2025, arXiv:2503.20783): GRPO without the division by the deviation.

    A_i = R_i - mean(R)

    Choices: as for GRPO.
    """
    return Algorithm(advantage=Relative(by=ByTask(), of=EpisodeReturn(), scale=NoScale(), average=average, alone=alone))


@recipe
def rloo(*, average: Average = "attempt", alone: Alone = "zero") -> Algorithm:
    """RLOO (Ahmadian et al. 2024, arXiv:2402.14740): an attempt against the mean of the *other* attempts at its task.

    A_i = R_i - mean_{j != i}(R_j) = n / (n - 1) * (R_i - mean(R))

    Choices: a task with one attempt gets 0.
    """
    return Algorithm(
        advantage=Relative(
            by=ByTask(),
            of=EpisodeReturn(),
            baseline=LeaveOneOut(),
            scale=NoScale(),
            average=average,
            alone=alone,
        )
    )


@recipe
def reinforce_pp(*, gamma: float = 1.0, eps: float = 1e-8) -> Algorithm:
    """REINFORCE++ (Hu 2025, arXiv:2501.03262): returns whitened over all tokens of the batch; no groups.

    A_t = (R_t - mean_tok(R)) / sqrt(var_tok(R) + eps)

    Choices: over several steps, R_t is the return-to-go. Tasks mix by design; a lone attempt still gets a signal. The
    KL term of the reward belongs to the reward.
    """
    returns = Relative(
        by=ByTask(),
        of=ReturnToGo(gamma=gamma),
        baseline=NoBaseline(),
        scale=NoScale(),
        average="step",
        alone="raw",
    )
    return Algorithm(advantage=Whitened(of=returns, eps=eps))


@recipe
def reinforce_pp_baseline(*, eps: float = 1e-8) -> Algorithm:
    """REINFORCE++ with baseline (Hu 2025, arXiv:2501.03262): Dr. GRPO's credit, whitened over all tokens of the batch.

    A_i = whiten_tok(R_i - mean(R))

    Choices: the mean is over attempts; a task with one attempt enters with 0. The whitening shifts, so an all-correct
    task can get credit that is not 0, as in verl.
    """
    return Algorithm(advantage=Whitened(of=dr_grpo().advantage, eps=eps))


@recipe
def flow_grpo(*, reference: bool = False) -> Algorithm:
    """Flow-GRPO (AgentFlow, Li et al. 2025, arXiv:2510.05592): the outcome, compared by task, goes to every turn.

    A_i = (R_i - mean(R)) / (std(R) + 1e-6), the same for all turns of attempt i

    Choices: the statistics count each attempt once, as the paper writes; the released code counts every turn, so that
    longer attempts weigh more (`reference=True`).
    """
    return grpo(average="step" if reference else "attempt")


@recipe
def mc_grpo(*, eps: float = 1e-3, reference: bool = False) -> Algorithm:
    """MC-GRPO (released code): the median as baseline, one attempt more than is trained on.

    A_i = (R_i - median(R)) / (MAD(R) + eps); the attempt at the median is dropped

    Choices: with 0/1 rewards and an odd group the median distance is always 0 and the released credit is +-1000; where
    it is under a thousandth of the range we divide by the sample deviation. `reference=True` keeps the release.
    """
    scale = MedianAbsoluteDeviation(eps=eps, fallback=None if reference else 1e-3)
    return Algorithm(
        advantage=Relative(by=ByTask(), of=EpisodeReturn(), baseline=Median(), scale=scale),
        filters=(DropPivot(),),
    )


@recipe
def ngrpo(
    *, best: float = 1.0, virtual: Annotated[int, Field(ge=0)] = 1, eps: float = 1e-6, reference: bool = False
) -> Algorithm:
    """NGRPO (released code): a made-up perfect attempt joins each group, so that all-wrong groups still teach.

    A_i = (R_i - mean(R + {best})) / (std(R + {best}) + eps)

    Choices: a single attempt is compared with the made-up one; the release gives it R (`reference=True`). Tasks that
    every attempt solved are dropped, as released.
    """
    credit = Relative(
        by=ByTask(),
        of=EpisodeReturn(),
        scale=Deviation(eps=eps),
        alone="raw" if reference else "zero",
        virtual=(best,) * virtual,
        virtual_is_company=not reference,
    )
    return Algorithm(advantage=credit, filters=(DropSolved(best=best),))
