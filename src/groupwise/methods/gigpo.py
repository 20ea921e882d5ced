from __future__ import annotations

from groupwise.credit import ByState, Deviation, NoScale, Peers, Relative, Sum, Term
from groupwise.losses import Clip, EntropyBonus, Kl, PolicyLoss, TokenMean
from groupwise.methods.method import method
from groupwise.methods.terms import ScaleName, make_episode_term, make_step_return
from groupwise.parts import Algorithm, Finite, Share


@method
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
    """GiGPO (Feng et al. 2025, arXiv:2505.10978): episode advantage plus an advantage among visits to the same state.

    A = A_episode + w * A_state;   A_state compares the return-to-go of steps with equal state

    Choices: sample standard deviation at both levels. Each rollout counts once in the episode statistics. The release
    counts its steps, gives a task with one row its raw score, and subtracts the invalid penalty from that row's episode
    score too (`reference=True`). By default the penalty is on the step return alone, after discounting: divided by a
    nearly zero standard deviation over rollouts, a penalty on one row could become huge. It is on malformed responses,
    as released; `refused_penalty`, which is not published, is on invalid actions. Similar states must contain the same
    numbers; the release does not require this. A state group may hold steps of a single rollout, as published; not with
    `peers="other_rollouts"`. Loss as released: clip 0.2, dual clip 3, mean over tokens, KL 0.01 as k3 (0.001 for its
    search task), entropy bonus 0.001.
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
