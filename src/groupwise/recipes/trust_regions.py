"""Recipes with another bound on a step than the clip: after ETR, R2VPO, DisCO, Reg-GRPO, and LLDS beside the clip."""

from __future__ import annotations

from typing import Literal

from groupwise.advantages import OutcomeSpread
from groupwise.core.algorithm import Algorithm
from groupwise.losses import (
    Disco,
    ElasticClip,
    Kl,
    Llds,
    Plain,
    PolicyLoss,
    RatioVariance,
    Regression,
    SequenceMean,
    TokenMean,
)
from groupwise.recipes.episode import grpo
from groupwise.recipes.recipe import Finite, recipe


@recipe
def after_etr(*, low: Finite = 0.2, high: Finite = 0.2, by_credit: Finite = 0.3, by_spread: Finite = 0.3) -> Algorithm:
    """After ETR (ours; arXiv:2601.03723 of 2026 has the idea): GRPO whose clip gives way where the signal is strong.

    E = clamp(micro(|A|) * macro(4 p (1 - p)), 0.5, 2);   l = max(-A * rho, -A * clip(rho, 1 - E low, 1 + E high))

    Choices: only the idea was found, that the range follows the size of a token's credit and how mixed its group is;
    the factors are ours, see the surrogate `elastic_clip`. p is the pass rate; for graded returns 4 p (1 - p) is their
    variance over a quarter of their range squared. Each answer counts the same. No KL.
    """
    surrogate = ElasticClip(low=low, high=high, by_credit=by_credit, by_spread=by_spread)
    return Algorithm(
        advantage=grpo().advantage,
        channels={"spread": OutcomeSpread()},
        loss=PolicyLoss(surrogate=surrogate, aggregate=SequenceMean()),
    )


@recipe
def r2vpo(
    *,
    first: Finite = 0.04,
    max_variance: Finite = 0.01,
    rate: Finite = 0.1,
    old: Literal["learner", "engine"] = "learner",
) -> Algorithm:
    """R2VPO (2026, arXiv:2601.03320; its dual step is ours): GRPO held by the variance of its ratios, not by a clip.

    l = -A * rho + m * (rho - 1)^2;   m <- clamp(m * exp(rate * (var / max_variance - 1)), 1e-4, 10), once an update

    Choices: m begins at 0.04, as re-implementations have it; the bound, the rate and the rule of m are ours. Mean over
    tokens, by token. m is kept from update to update, in checkpoints and in the journal, and is the column
    `ratio_multiplier`. first = 0 is GRPO's credit without any trust region. `old="engine"` takes ratios against the
    log-probs recorded at sampling, as the source does to reuse stale samples; attempts of another policy always are.
    """
    penalty = RatioVariance(first=first, max_variance=max_variance, rate=rate)
    return Algorithm(
        advantage=grpo().advantage,
        loss=PolicyLoss(surrogate=Plain(), aggregate=TokenMean(), penalties=(penalty,), old=old),
    )


@recipe
def disco(
    *,
    score: Literal["log_likelihood", "ratio"] = "log_likelihood",
    negatives: Literal["hardest", "mean"] = "hardest",
    tau: Finite | None = None,
    max_kl: Finite = 1e-4,
    stiffness: Finite = 1e3,
    solved_above: Finite = 0.5,
) -> Algorithm:
    """DisCO (Li et al. 2025, arXiv:2505.12366): solved attempts are pushed above failed ones, within a bound on the KL.

    J = mean over the solved of s - tau * log(mean over the failed of exp(s / tau));   loss = -mean J + KL hinge

    Choices: credit is GRPO's, for reports alone; the loss goes by returns above `solved_above`. s is the mean log-prob;
    `score="ratio"` takes mean ratios. tau is by default the release's, 10 and for ratios 1. `negatives="mean"` is
    DisCO-b. Written from the formulas: the release has two slips there. A group that is all solved or all failed adds 0
    and counts.
    """
    if tau is None:
        tau = 1.0 if score == "ratio" else 10.0
    loss = Disco(
        score=score, negatives=negatives, tau=tau, max_kl=max_kl, stiffness=stiffness, solved_above=solved_above
    )
    return Algorithm(advantage=grpo().advantage, loss=loss)


@recipe
def reg_grpo(*, floor: Finite = 0.5, kl: Finite = 0.04) -> Algorithm:
    """Reg-GRPO (DeepVideo-R1, Park et al. 2025, arXiv:2506.07464, from notes on it): fit log-ratios to the credit.

    loss = mean_i (A_i - P_i)^2 + kl * k3;   P_i = (R_i - mean(R)) / max(std(R), floor),   R_i = log pi / pi_old

    Choices: the floor of the deviation, which is 0 at the first step, and the weight of the KL are ours; R is summed
    over all steps of an attempt. Groups without credit are left out. The source's hints for hard prompts are not here.
    """
    return Algorithm(advantage=grpo().advantage, loss=Regression(floor=floor, penalties=(Kl(weight=kl),)))


@recipe
def llds(*, weight: Finite = 0.1, gate: Literal["step", "trajectory"] = "step") -> Algorithm:
    """LLDS (2025, arXiv:2512.04220, from re-implementations): GRPO that does not let what was right become unlikely.

    loss = GRPO + weight * sum over active tokens of max(0, logp_old - logp) / active tokens

    Choices: a step is active if its credit is not negative and it became less likely as a whole; `gate="trajectory"`
    decides by attempt. It is 0 at the first optimiser step of an update. See the loss `llds`.
    """
    base = grpo()
    assert base.loss is not None, "the recipe has a loss"
    return Algorithm(advantage=base.advantage, loss=Llds(of=base.loss, weight=weight, gate=gate))
