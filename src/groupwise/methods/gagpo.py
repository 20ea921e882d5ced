from __future__ import annotations

from groupwise.credit import (
    ByState,
    ByTask,
    NoScale,
    Penalised,
    Relative,
    ReturnToGo,
    Scaled,
    StepRewardSignal,
    TemporalDifferences,
)
from groupwise.losses import Clip, Kl, PolicyLoss, SequenceMean, SequenceRatio
from groupwise.methods.method import AfterLimit, ScaledBy, method
from groupwise.parts import Algorithm, EstimatorPart, Finite, Share


@method
def gagpo(
    *,
    gamma: Share = 0.95,
    lam: Share = 0.95,
    scale_by: ScaledBy = "task",
    truncated: AfterLimit = "zero",
    invalid_penalty: Finite = 0.1,
) -> Algorithm:
    """GAGPO (2026, arXiv:2605.13217, from its abstract): GAE with the mean return of a state's visits as its value.

    V(s) = mean return-to-go of the visits to s
    delta_t = r_t + gamma V(s_{t+1}) - V(s_t),   A_t = sum_l (gamma lam)^l delta_{t+l}

    Choices (only the abstract was read, so these are ours): lam 0.95. The value of a state with one visit is its own
    return, so that its step is compared with what follows. Advantages are divided by their root mean square over the
    task's steps, or the state's, or not at all; they are not centred again. After a rollout that a limit cut off, the
    value is 0, or that of its last state again. The invalid penalty is a reward and so part of returns: subtracted
    after discounting, as in GiGPO, it would give the step before a positive advantage. One ratio for all tokens of a
    step, clip 0.2, each step counts the same, KL 0.01 as k3.
    """
    returns = make_step_rewards_to_go(gamma, invalid_penalty)
    above_value = Relative(by=ByState(), of=returns, scale=NoScale(), average="step")
    credit = TemporalDifferences(of=above_value, returns=returns, gamma=gamma, lam=lam, truncated=truncated)
    return make_temporal_algorithm(credit, scale_by)


def make_step_rewards_to_go(gamma: float, invalid_penalty: float) -> ReturnToGo:
    return ReturnToGo(gamma=gamma, of=Penalised(of=StepRewardSignal(), penalty=invalid_penalty))


def make_temporal_algorithm(credit: EstimatorPart, scale_by: ScaledBy) -> Algorithm:
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
