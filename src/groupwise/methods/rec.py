from __future__ import annotations

from typing import ClassVar, Literal

import numpy as np
from pydantic import NonNegativeFloat, model_validator

from groupwise.credit import ByTask, EpisodeReturn, LogMeanExp, Mean, NoScale, Relative, ShiftedMean, weigh_credit
from groupwise.data.credit import Credit
from groupwise.data.step_table import StepTable
from groupwise.losses import (
    PolicyLoss,
    SequenceMean,
    SequenceRatio,
    SquaredChange,
    Tensor,
    TokenColumns,
    TokenLoss,
    TokenMean,
)
from groupwise.methods.dr_grpo import dr_grpo
from groupwise.methods.method import method
from groupwise.parts import Algorithm, EstimatorPart, Finite, Part, Positive
from groupwise.system.errors import ConfigError


@method
def rec(
    *,
    region: Literal["one_side", "two_side", "ring"] = "one_side",
    weighted: bool = False,
    low: Finite | None = None,
    high: Finite | None = None,
    far_low: Finite = 0.6,
    far_high: Finite = 2.0,
    by_answer: bool = False,
) -> Algorithm:
    """REC (2025, arXiv:2509.24203): REINFORCE on Dr. GRPO's advantage, without the tokens whose ratio went too far.

    A_i = R_i - mean(R);   l = -A * logp * keep(rho, A) * (sg(rho) if weighted else 1);   loss = sum_t l_t / tokens

    Choices: the default is the source's OneSide-NoIS; `weighted=True` is OneSide-IS, `region="two_side"` with it
    TwoSide-IS, `region="ring"` Ring-NoIS. `by_answer=True` is REC-GSPO: one geometric ratio per answer, each answer
    counts the same. Bounds that are not given are 0.2 and 0.2, for answers 3e-4 and 4e-4. Ratios are against the
    log-probs that the engine gave, since the source is about the policy that sampled; it costs no forward pass. No KL.
    """
    default_low, default_high = (3e-4, 4e-4) if by_answer else (0.2, 0.2)
    low, high = default_low if low is None else low, default_high if high is None else high
    surrogate = Rec(region=region, weighted=weighted, low=low, high=high, far_low=far_low, far_high=far_high)
    if by_answer:
        loss = PolicyLoss(ratio=SequenceRatio(), surrogate=surrogate, aggregate=SequenceMean(), old="engine")
    else:
        loss = PolicyLoss(surrogate=surrogate, aggregate=TokenMean(), old="engine")
    return Algorithm(advantage=dr_grpo().advantage, loss=loss)


@method
def opmd(
    *, tau: Finite = 0.1, baseline: Literal["mean", "log_mean_exp"] = "mean", temperature: Finite = 1.0
) -> Algorithm:
    """OPMD (Kimi k1.5, 2025, arXiv:2501.12599, as in arXiv:2509.24203): REINFORCE, held to the policy that sampled.

    A_i = R_i - mean(R);   l = -A * logp + tau * (logp - logp_old)^2;   loss = sum_t l_t / tokens

    Choices: the half of the derivation is in tau. `baseline="log_mean_exp"` subtracts t * log(mean(exp(R / t))) instead
    of the mean, t = `temperature`; tau = 0 gives the release's form, which has no square then, and divides its loss by
    1 + t, which is left to the learning rate here. logp_old is the engine's, as for `rec`. tau = 0 is REINFORCE.
    """
    level = Mean() if baseline == "mean" else LogMeanExp(temperature=temperature)
    return Algorithm(
        advantage=Relative(by=ByTask(), of=EpisodeReturn(), baseline=level, scale=NoScale()),
        loss=PolicyLoss(
            surrogate=Reinforce(), aggregate=TokenMean(), penalties=(SquaredChange(weight=tau),), old="engine"
        ),
    )


@method
def asymre(*, shift: Finite = 0.1) -> Algorithm:
    """AsymRE (2025, as in arXiv:2509.24203): REINFORCE with a baseline below the mean; positive advantages outweigh
    negative.

    A_i = R_i - (mean(R) - shift);   l = -A * logp;   loss = sum_t l_t / tokens

    Choices: rollouts that all did equally well, or equally badly, get the shift: a pull towards what was sampled, so
    keep it small. A task with one rollout gets 0; Trinity's code gives it R, a baseline of 0 without the shift. shift =
    0 is REINFORCE.
    """
    return Algorithm(
        advantage=Relative(by=ByTask(), of=EpisodeReturn(), baseline=ShiftedMean(shift=shift), scale=NoScale()),
        loss=PolicyLoss(surrogate=Reinforce(), aggregate=TokenMean(), old="engine"),
    )


@method
def red_weight(*, temperature: Finite = 1.0) -> Algorithm:
    """RED-Weight (2025, arXiv:2509.24203): REINFORCE with larger positive and smaller negative advantages.

    A_i = d_i * exp(d_i / temperature),   d_i = R_i - mean(R);   l = -A * logp;   loss = sum_t l_t / tokens

    Choices: d / temperature is clamped to +-20, so that no advantage is infinite. For `temperature` towards infinity it
    is REINFORCE. RED-Drop, which leaves random failures out, is a rollout filter and not here.
    """
    return Algorithm(
        advantage=ExponentiallyWeighted(of=dr_grpo().advantage, temperature=temperature),
        loss=PolicyLoss(surrogate=Reinforce(), aggregate=TokenMean(), old="engine"),
    )


# REINFORCE that leaves tokens out by their ratio: the surrogates of the REC family, whose ratios have no gradient.
#


class Reinforce(Part, slot="surrogate"):
    """The plain policy gradient, whatever policy sampled the token: no ratio, no trust region.

        l = -A * logp

    Source: REINFORCE (Williams 1992). The ratio of the loss is measured and not used.
    """

    scales_with_credit: ClassVar[bool] = True

    def __call__(self, ratio_T: Tensor, columns: TokenColumns) -> TokenLoss:
        return TokenLoss(loss=-columns.advantage * columns.logp)


class Rec(Part, slot="surrogate"):
    """REINFORCE on the tokens whose ratio lies in a region; the others are left out.

        l = -A * logp * keep * (sg(rho) if weighted else 1)

        one_side   keep where A >= 0 and rho <= 1 + high, or A <= 0 and rho >= 1 - low
        two_side   keep where 1 - low <= rho <= 1 + high
        ring       keep where 1 - low <= rho <= 1 + high, or A >= 0 and rho <= 1 - far_low, or A <= 0 and
                   rho >= 1 + far_high

    Source: REC (2025, arXiv:2509.24203) and its code in Trinity-RFT. `one_side` and `weighted` has the gradient of
    `Clip`, token by token; so the source finds that what keeps off-policy training stable is what is left out, not the
    weight. Choices: the bounds themselves are kept. What is left out stays in every denominator.
    """

    scales_with_credit: ClassVar[bool] = True
    is_trust_region: ClassVar[bool] = True
    region: Literal["one_side", "two_side", "ring"] = "one_side"
    """Which tokens are kept."""
    weighted: bool = True
    """Whether a token is weighed by its ratio (the source's IS)."""
    low: NonNegativeFloat = 0.2
    """How far below 1 a ratio may go."""
    high: NonNegativeFloat = 0.2
    """How far above 1 a ratio may go."""
    far_low: NonNegativeFloat = 0.6
    """`ring`: from how far below 1 on a token with a positive advantage is kept again."""
    far_high: NonNegativeFloat = 2.0
    """`ring`: from how far above 1 on a token with a negative advantage is kept again."""

    @model_validator(mode="after")
    def _has_a_gap(self) -> Rec:
        if self.region == "ring" and (self.far_low < self.low or self.far_high < self.high):
            raise ConfigError(
                f"the ring begins within the region (low {self.low:g}, far_low {self.far_low:g}, high {self.high:g}, "
                f"far_high {self.far_high:g}); give far_low and far_high that are at least low and high"
            )
        return self

    def __call__(self, ratio_T: Tensor, columns: TokenColumns) -> TokenLoss:
        A_T, rho_T = columns.advantage, ratio_T.detach()
        below_T, above_T = rho_T < 1 - self.low, rho_T > 1 + self.high
        if self.region == "one_side":
            below_T, above_T = below_T & (A_T < 0), above_T & (A_T > 0)
        elif self.region == "ring":
            below_T = below_T & ~((A_T >= 0) & (rho_T <= 1 - self.far_low))
            above_T = above_T & ~((A_T <= 0) & (rho_T >= 1 + self.far_high))
        kept_T = (~(below_T | above_T)).to(rho_T)
        loss_T = -A_T * columns.logp * (kept_T * rho_T if self.weighted else kept_T)
        return TokenLoss(loss=loss_T, clipped={"high": above_T, "low": below_T})


LARGEST_EXPONENT = 20.0
"""Advantage over temperature is clamped to this, as log-ratios are, so that no advantage is infinite."""


class ExponentiallyWeighted(Part, slot="estimator"):
    """Larger positive advantages, smaller negative ones: A * exp(A / temperature).

    Source: RED-Weight (2025, arXiv:2509.24203) and its code in Trinity-RFT, temperature 1. An advantage of 0 stays 0,
    and no sign changes. The exponent is the advantage itself, so a temperature fits one scale of rewards.
    """

    of: EstimatorPart
    """The advantages that are weighted."""
    temperature: Positive = 1.0
    """The advantage whose weight is e."""

    def __call__(self, table: StepTable) -> Credit:
        inner = self.of(table).trace
        weight = np.exp(np.clip(inner.values / self.temperature, -LARGEST_EXPONENT, LARGEST_EXPONENT))
        return weigh_credit(table, inner, weight, self)
