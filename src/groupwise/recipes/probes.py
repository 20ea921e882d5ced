"""Recipes that look into an answer by playing on from parts of it: SPO-chain, SPAE, and one after VSRM."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from groupwise.advantages.token_credit import LineGains, PotentialCredit, SegmentCredit, WhitenedTokens
from groupwise.core.algorithm import Algorithm
from groupwise.losses import Clip, PolicyLoss, TokenMean
from groupwise.recipes.episode import dr_grpo, rloo
from groupwise.recipes.recipe import Finite, Share, recipe
from groupwise.rollout.measures import AnswerPotential, ForcedAnswers, SegmentValues

Count = Annotated[int, Field(ge=1)]


@recipe
def spo_chain(
    *, max_probability: Share = 0.9, uncertain_tokens: Count = 5, continuations: Count = 9, whiten: bool = True
) -> Algorithm:
    """SPO-chain (2025, arXiv:2505.23564): a segment of an answer has what it changed in the value of the answer so far.

    A_k = V_k - V_(k-1),   V = mean return of `continuations` from there;   at the end the return itself

    Choices: those of the parts `segment_values` and `segment_credit`. The value of the empty answer is the mean of the
    other attempts at the task, so that with one segment and `whiten=False` the credit is that of `rloo`, to the bit.
    Only tokens less likely than `max_probability` train. Whitened over the batch, as released. Clip 0.2, no KL.
    """
    part = SegmentCredit(max_probability=max_probability)
    return Algorithm(
        advantage=rloo().advantage,
        token_credit=WhitenedTokens(of=part) if whiten else part,
        measures=(
            SegmentValues(
                max_probability=max_probability, uncertain_tokens=uncertain_tokens, continuations=continuations
            ),
        ),
        loss=PolicyLoss(surrogate=Clip(), aggregate=TokenMean()),
    )


@recipe
def spae(
    *, alpha: Share = 0.5, xi: Finite = 0.5, saturated_above: Finite = 0.9, stub: str = "answer", probes: Count = 5
) -> Algorithm:
    """SPAE (2026, arXiv:2601.03823, from notes): lines that made the answer known count more, those after it less.

    Phi = 1.5 Acc Conf + 0.5 Acc - Conf,   A_k = A * f(lines since known) + xi * g(change of Phi), z-scored

    Choices: those of the parts `answer_potential` and `potential_credit`. A is the return less the group's mean. Probes
    of at most ten tokens at temperature 0.6 after each line. Clip 0.2 and 0.28, mean over tokens, no KL, as DAPO.
    """
    part = PotentialCredit(alpha=alpha, xi=xi, saturated_above=saturated_above)
    return Algorithm(
        advantage=dr_grpo().advantage,
        token_credit=WhitenedTokens(of=part),
        measures=(AnswerPotential(stub=stub, probes=probes),),
        loss=PolicyLoss(surrogate=Clip(low=0.2, high=0.28), aggregate=TokenMean()),
    )


@recipe
def after_vsrm(
    *, weight: Finite = 1.0, stub: str = "answer", min_tokens: Count = 50, answers: Count = 8, idle_cost: Finite = 0.0
) -> Algorithm:
    """After VSRM (ours, after arXiv:2508.10293): a line is paid what it changed in the chance to answer rightly.

    A_k = A + weight * r_k,   r_k = change of accuracy, or a faded share of the next change where there is none

    Choices: those of the parts `forced_answers` and `line_gains`; the paper's formula, split rule and settings were not
    found, so all of them are ours. A probe's answer may be as long as the run's longest response and 64 tokens more,
    not 64 at most. A is the return less the group's mean. Clip 0.2, mean over tokens, no KL.
    """
    return Algorithm(
        advantage=dr_grpo().advantage,
        token_credit=LineGains(weight=weight, idle_cost=idle_cost),
        measures=(ForcedAnswers(stub=stub, min_tokens=min_tokens, answers=answers),),
        loss=PolicyLoss(surrogate=Clip(), aggregate=TokenMean()),
    )
