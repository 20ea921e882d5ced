"""Recipes that compare steps taken from the same state: GiGPO, Step-GRPO."""

from __future__ import annotations

from groupwise.advantages import (
    Deviation,
    NoScale,
    Relative,
    StepRewardSignal,
    Sum,
    Term,
)
from groupwise.core.algorithm import Algorithm
from groupwise.groups import ByState
from groupwise.groups.peers import Peers
from groupwise.losses import Clip, EntropyBonus, Kl, PolicyLoss, TokenMean
from groupwise.recipes.episode import grpo
from groupwise.recipes.recipe import Finite, Share, recipe
from groupwise.recipes.terms import ScaleName, make_episode_term, make_step_return


@recipe
def gigpo(
    *,
    step_weight: Finite = 1.0,
    gamma: Share = 0.95,
    scale: ScaleName = "std",
    similarity: float | None = None,
    invalid_penalty: Finite = 0.1,
    refused_penalty: Finite = 0.0,
    peers: Peers = "any",
    reference: bool = False,
) -> Algorithm:
    """GiGPO (Feng et al. 2025, arXiv:2505.10978): episode credit, plus credit among visits to the same state.

    A = A_episode + w * A_state;   A_state compares the return-to-go of steps with equal state

    Choices: sample deviation at both levels. Each attempt counts once in the episode statistics; the release counts its
    steps, gives a task with one row its raw score, and takes the invalid penalty off that row's episode score too
    (`reference=True`). By default the penalty is on the step return alone, after discounting: divided by a
    deviation over attempts that may be nearly 0, a tenth of a point on one row could become any number. It is on
    malformed responses, as released; `refused_penalty`, which nobody published, on refused actions.
    Similar states must contain the same numbers, which the release does not ask. A state group may hold steps of a
    single rollout, as published; not with `peers="other_rollouts"`. Loss as released: clip 0.2, dual clip
    3, mean over tokens, KL 0.01 as k3 (0.001 for its search task), entropy bonus 0.001.
    """
    spread = Deviation(ddof=1) if scale == "std" else NoScale()
    state = Relative(
        by=ByState(similarity=similarity, same_numbers=not reference, peers=peers),
        of=make_step_return(gamma=gamma, invalid_penalty=invalid_penalty, refused_penalty=refused_penalty),
        scale=spread,
        average="step",
    )
    episode = make_episode_term(scale=scale, invalid_penalty=invalid_penalty, reference=reference)
    return Algorithm(
        advantage=Sum(terms=(Term(weight=1.0, of=episode), Term(weight=step_weight, of=state))),
        loss=PolicyLoss(
            surrogate=Clip(dual=3.0),
            aggregate=TokenMean(),
            penalties=(Kl(estimator="k3", weight=0.01), EntropyBonus(weight=0.001)),
        ),
    )


@recipe
def step_grpo(*, eps: Finite = 1e-6) -> Algorithm:
    """Step-GRPO (R1-Router, 2025, arXiv:2505.22095): every step is a GRPO prompt of its own, with its own reward.

    A_t = (r_t - mean(r)) / (std(r) + eps) over the steps with the same state

    Choices: steps are compared by their state, not by their whole prompt as published: where prompts show past steps
    too, different prompts may meet in a group (with `memory = {kind = "window", steps = 0}` they show none).
    R1-Router's own rewards (likeness of the sub-question, the right retriever, recall of the answer) are not there;
    what is compared is what the environment pays each step. Sample deviation. Loss as for GRPO.
    """
    return Algorithm(
        advantage=Relative(by=ByState(), of=StepRewardSignal(), scale=Deviation(eps=eps), average="step"),
        loss=grpo().loss,
    )
