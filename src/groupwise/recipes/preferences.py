"""Recipes that learn from pairs: which of two attempts at a task, or of two steps in a state, did better.

Their credit is that of GRPO, for reports; the losses read who is paired with whom, and nothing else of it.
"""

from __future__ import annotations

from typing import Literal

from groupwise.advantages import ColumnSignal, EpisodeReturn, ReturnToGo
from groupwise.core.algorithm import Algorithm
from groupwise.groups import ByState
from groupwise.losses import AllPairs, BestAgainstWorst, ByVerdict, Dpo, P3o, Rpo, Siblings, Simpo, StepApo
from groupwise.recipes.episode import grpo, rloo
from groupwise.recipes.kl_in_reward import take_kl_off_answers
from groupwise.recipes.recipe import Finite, Share, recipe

Pairs = Literal["best_against_worst", "all"]


def _choose_pairs(pairs: Pairs) -> BestAgainstWorst | AllPairs:
    return BestAgainstWorst() if pairs == "best_against_worst" else AllPairs()


@recipe
def dpo(*, beta: Finite = 0.1, pairs: Pairs = "best_against_worst") -> Algorithm:
    """DPO (Rafailov et al. 2023, arXiv:2305.18290): the better of two attempts becomes likelier than the worse one.

    loss = mean over pairs of -log sigmoid(z),   z = beta * (log-ratio of the winner - log-ratio of the loser)

    Choices: a log-ratio is against the policy that the run started from, summed over all steps of an attempt. Pairs are
    the best and the worst attempt at each task, of those just sampled; `pairs="all"` takes every two whose returns
    differ, each task counting the same. A task whose attempts all did equally well has no pair.
    """
    return Algorithm(advantage=grpo().advantage, pairing=_choose_pairs(pairs), loss=Dpo(beta=beta))


@recipe
def simpo(*, beta: Finite = 2.5, margin: Finite = 0.55, pairs: Pairs = "best_against_worst") -> Algorithm:
    """SimPO (Meng et al. 2024, arXiv:2405.14734): a token of the better attempt becomes likelier than of the worse one.

    loss = mean over pairs of -log sigmoid(z),   z = beta * (mean logp of the winner - of the loser - margin)

    Choices: no reference. The release's gamma is beta * margin. Pairs as for `dpo`.
    """
    return Algorithm(advantage=grpo().advantage, pairing=_choose_pairs(pairs), loss=Simpo(beta=beta, margin=margin))


@recipe
def rpo(*, beta: Finite = 0.01, eta: Finite = 0.005, pairs: Pairs = "best_against_worst") -> Algorithm:
    """RPO (Liu et al. 2024, arXiv:2405.16436): DPO that also imitates the winners.

    loss = mean over pairs of -log sigmoid(z) - eta * mean logp of the winner,   z = as for DPO

    Choices: imitation is a mean over the winner's tokens. Pairs as for `dpo`. eta = 0 is DPO.
    """
    return Algorithm(advantage=grpo().advantage, pairing=_choose_pairs(pairs), loss=Rpo(beta=beta, eta=eta))


@recipe
def w_dpo(*, beta: Finite = 0.1, reference: bool = True, verdict: str = "accepted") -> Algorithm:
    """W-DPO (StepORLM, 2025, from notes on the paper): DPO whose pairs weigh as much as their judges tell them apart.

    loss = mean over pairs of -w * log sigmoid(z);   w = 1 where outcomes differ, else |difference of step scores|

    Choices: the notes print z without a reference (`reference=False`); we have it, as DPO does. A step's verdict is a
    column from 0 to 1: by default whether the environment accepted its action, which is a rule in the place of the
    source's generative reward model; a judge's measure gives others. Every two attempts at a task are a pair.
    """
    return Algorithm(
        advantage=grpo().advantage,
        pairing=ByVerdict(outcome=EpisodeReturn(), verdict=ColumnSignal(name=verdict)),
        loss=Dpo(beta=beta, reference=reference, per="pair"),
    )


@recipe
def step_apo(
    *, beta: Finite = 0.3, alpha: Finite = 1.0, gamma: Share = 1.0, pairs: Pairs = "best_against_worst"
) -> Algorithm:
    """Step-APO (CPL, Wang et al. 2024, arXiv:2409.08642): DPO between steps of one state, by how much they differ.

    loss = mean over pairs of -log sigmoid(z),   z = beta * (log-ratio of winner - of loser) - alpha * (Q_w - Q_l)

    Choices: the source has its steps and Q from a tree search; here they are steps of several attempts that came
    through one state, and Q is what followed, discounted by `gamma`. alpha fits returns of about 1. States that one
    attempt alone came through have no pair.
    """
    siblings = Siblings(
        by=ByState(), of=ReturnToGo(gamma=gamma), which="all" if pairs == "all" else "best_against_worst"
    )
    return Algorithm(advantage=grpo().advantage, pairing=siblings, loss=StepApo(beta=beta, alpha=alpha))


@recipe
def p3o(
    *, clip: Literal["separate", "joint", "none"] = "none", width: Finite = 0.2, kl_in_reward: Finite = 0.0
) -> Algorithm:
    """P3O (Wu et al. 2023, arXiv:2310.00212; its clips are ours): pairs move apart by how much their returns differ.

    grad = mean over pairs of -(R_w - R_l) / 2 * grad(logp of the winner - logp of the loser);   A_i = as for RLOO

    Choices: all pairs of a task; each pair counts the same. Without a clip it is the published gradient, on-policy that
    of RLOO times (n - 1) / 2 a task of n attempts, a constant where all tasks have equally many. The source clips too;
    its form was not found, so `clip="separate"` and `"joint"` are reconstructed, see the loss `p3o`, and neither is the
    default. The source takes a KL to the reference off the reward: `kl_in_reward=0.1` does, as for RLOO, and the
    default leaves it out. Log-probs are summed over all steps of an attempt.
    """
    return Algorithm(
        advantage=rloo().advantage,
        pairing=AllPairs(counts="pair"),
        loss=P3o(clip=clip, width=width),
        **take_kl_off_answers(kl_in_reward),
    )
