"""Recipes whose credit is a temporal difference of grouped values: GAGPO, and ours with HGPO's levels of history."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from groupwise.advantages import (
    Blend,
    LeaveOneOut,
    Mean,
    NoScale,
    Penalised,
    Relative,
    ReturnToGo,
    Scaled,
    Shrunk,
    StepRewardSignal,
    TemporalDifferences,
    Term,
)
from groupwise.core.algorithm import Algorithm
from groupwise.core.parts.slots import EstimatorPart
from groupwise.groups import ByHistory, ByState, ByTask
from groupwise.losses import Clip, Kl, PolicyLoss, SequenceMean, SequenceRatio
from groupwise.recipes.recipe import Finite, Share, recipe

ScaledBy = Literal["task", "state", "none"]
"""Over whose credit the root mean square is taken that credit is divided by."""
AfterLimit = Literal["zero", "value"]
"""What is expected after the end of an attempt that a limit cut off."""


@recipe
def gagpo(
    *,
    gamma: Share = 0.95,
    lam: Share = 0.95,
    scale_by: ScaledBy = "task",
    truncated: AfterLimit = "zero",
    invalid_penalty: Finite = 0.1,
) -> Algorithm:
    """GAGPO (2026, arXiv:2605.13217, from its abstract): what a step changed in the mean return of its state's visits.

    V(s) = mean return-to-go of the visits to s
    delta_t = r_t + gamma V(s_{t+1}) - V(s_t),   A_t = sum_l (gamma lam)^l delta_{t+l}

    Choices (only the abstract was read, so these are ours): lam 0.95. A state that was visited once is worth its own
    return, so that its step is compared with what follows. Credit is divided by its root mean square over the task's
    steps, or the state's, or not at all; it is not centred again. An attempt that a limit cut off ends in nothing, or
    in its last state's value once more. The invalid penalty is a reward, and so part of returns: put on its step
    after discounting, as GiGPO has it, it would praise the step before. One ratio for all tokens of a step, clip 0.2,
    each step counts the same, KL 0.01 as k3.
    """
    returns = _make_returns(gamma, invalid_penalty)
    above_value = Relative(by=ByState(), of=returns, scale=NoScale(), average="step")
    credit = TemporalDifferences(of=above_value, returns=returns, gamma=gamma, lam=lam, truncated=truncated)
    return _make_algorithm(credit, scale_by)


@recipe
def hgae(
    *,
    depth: Annotated[int, Field(ge=0)] = 2,
    alpha: Annotated[float, Field(ge=0, le=64)] = 1.0,
    gamma: Share = 0.95,
    lam: Share = 0.95,
    leave_out: bool = False,
    scale_by: ScaledBy = "task",
    truncated: AfterLimit = "zero",
    invalid_penalty: Finite = 0.1,
) -> Algorithm:
    """HGAE (ours, after arXiv:2602.22817 and arXiv:2605.13217): GAGPO with HGPO's levels of history as the value.

    V_t = sum_k w_k V_k / sum_k w_k,   V_k = mean return of steps with equal (s_{t-k}, ..., s_t),   w_k = (k+1)^alpha
    delta_t = r_t + gamma V_{t+1} - V_t,   A = sum_l (gamma lam)^l delta_{t+l}

    Choices: levels on which the step is alone, or has no such history, drop out; where all do, the value is the step's
    own return. `leave_out=True` takes each mean over the other steps. The rest as for `gagpo`, which is depth 0.
    """
    returns = _make_returns(gamma, invalid_penalty)
    baseline = LeaveOneOut() if leave_out else Mean()
    levels = [
        Relative(by=ByHistory(depth=k), of=returns, baseline=baseline, scale=NoScale(), average="step")
        for k in range(depth + 1)
    ]
    above_value = Blend(terms=tuple(Term(weight=float(k + 1) ** alpha, of=of) for k, of in enumerate(levels)))
    credit = TemporalDifferences(of=above_value, returns=returns, gamma=gamma, lam=lam, truncated=truncated)
    return _make_algorithm(credit, scale_by)


@recipe
def shrunk_hgae(
    *,
    depth: Annotated[int, Field(ge=0)] = 2,
    strength: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 8.0,
    gamma: Share = 1.0,
    lam: Share = 0.0,
    scale_by: ScaledBy = "task",
    truncated: AfterLimit = "zero",
    invalid_penalty: Finite = 0.1,
) -> Algorithm:
    """Shrunk HGAE (ours, ADR 39): what a step changed in a value for which small groups borrow from larger ones.

    V_t = the finest of V_k = (n_k mean_k + strength V_{k-1}) / (n_k + strength),   V_{-1} = mean over the task's steps
    delta_t = r_t + gamma V_{t+1} - V_t,   A_t = sum_l (gamma lam)^l delta_{t+l}

    n_k steps share the state and the k states before it, mean_k is their mean return.

    Choices: strength 8 and lam 0 had the smallest error against true advantages in corridors that hide 0 to 3 bits,
    measured by hand without a file (ADR 39); from 4 to 16 it hardly matters. A lone step's value is mostly that of
    coarser levels, where HGAE has its own return.
    gamma 1, so that a task which all attempts solved alike, with one reward at the end, gets exactly 0: with less, or
    with rewards on the way, steps differ from the task's mean although attempts do not. The rest as for `gagpo`.
    """
    returns = _make_returns(gamma, invalid_penalty)
    levels = (ByTask(), *(ByHistory(depth=k) for k in range(depth + 1)))
    above_value = Shrunk(levels=levels, of=returns, strength=strength)
    credit = TemporalDifferences(of=above_value, returns=returns, gamma=gamma, lam=lam, truncated=truncated)
    return _make_algorithm(credit, scale_by)


def _make_returns(gamma: float, invalid_penalty: float) -> ReturnToGo:
    """Make the discounted return of rewards that pay for malformed responses."""
    return ReturnToGo(gamma=gamma, of=Penalised(of=StepRewardSignal(), penalty=invalid_penalty))


def _make_algorithm(credit: EstimatorPart, scale_by: ScaledBy) -> Algorithm:
    """Divide the credit as asked, and add GAGPO's loss."""
    if scale_by != "none":
        credit = Scaled(of=credit, by=ByTask() if scale_by == "task" else ByState())
    return Algorithm(
        advantage=credit,
        loss=PolicyLoss(
            ratio=SequenceRatio(unit="step"),
            surrogate=Clip(),
            aggregate=SequenceMean(),
            penalties=(Kl(estimator="k3", weight=0.01),),
        ),
    )
