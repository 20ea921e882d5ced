"""Group-relative REINFORCE for attempts that older weights sampled: REC, OPMD, AsymRE and RED-Weight."""

from __future__ import annotations

from typing import Literal

from groupwise.advantages import EpisodeReturn, ExponentiallyWeighted, LogMeanExp, Mean, NoScale, Relative, ShiftedMean
from groupwise.core.algorithm import Algorithm
from groupwise.groups import ByTask
from groupwise.losses import PolicyLoss, Rec, Reinforce, SequenceMean, SequenceRatio, SquaredChange, TokenMean
from groupwise.recipes.episode import dr_grpo
from groupwise.recipes.recipe import Finite, recipe


@recipe
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
    """REC (2025, arXiv:2509.24203): REINFORCE on Dr. GRPO's credit, without the tokens whose ratio went too far.

    A_i = R_i - mean(R);   l = -A * logp * keep(rho, A) * (sg(rho) if weighted else 1);   loss = sum_t l_t / tokens

    Choices: the default is the source's OneSide-NoIS; `weighted=True` is OneSide-IS, `region="two_side"` with it
    TwoSide-IS, `region="ring"` Ring-NoIS. `by_answer=True` is REC-GSPO: one geometric ratio an answer, each answer
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


@recipe
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


@recipe
def asymre(*, shift: Finite = 0.1) -> Algorithm:
    """AsymRE (2025, as in arXiv:2509.24203): REINFORCE with a baseline below the mean, so that praise outweighs blame.

    A_i = R_i - (mean(R) - shift);   l = -A * logp;   loss = sum_t l_t / tokens

    Choices: attempts that all did equally well, well or badly, get the shift: a pull towards what was sampled, so keep
    it small. A task with one attempt gets 0; Trinity's code gives it R, a baseline of 0 without the shift. shift = 0 is
    REINFORCE.
    """
    return Algorithm(
        advantage=Relative(by=ByTask(), of=EpisodeReturn(), baseline=ShiftedMean(shift=shift), scale=NoScale()),
        loss=PolicyLoss(surrogate=Reinforce(), aggregate=TokenMean(), old="engine"),
    )


@recipe
def red_weight(*, temperature: Finite = 1.0) -> Algorithm:
    """RED-Weight (2025, arXiv:2509.24203): REINFORCE whose praise is weighed up and whose blame is weighed down.

    A_i = d_i * exp(d_i / temperature),   d_i = R_i - mean(R);   l = -A * logp;   loss = sum_t l_t / tokens

    Choices: d / temperature is clamped to +-20, so that no credit is infinite. For `temperature` towards infinity it is
    REINFORCE. RED-Drop, which leaves random failures out, is an admission and not here.
    """
    return Algorithm(
        advantage=ExponentiallyWeighted(of=dr_grpo().advantage, temperature=temperature),
        loss=PolicyLoss(surrogate=Reinforce(), aggregate=TokenMean(), old="engine"),
    )
