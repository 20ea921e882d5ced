from __future__ import annotations

from typing import Annotated

from pydantic import Field, NonNegativeFloat, NonNegativeInt

from groupwise.credit import Blend, Deviation, NoScale, Peers, Term
from groupwise.losses import Clip, EntropyBonus, Kl, PolicyLoss, TokenMean
from groupwise.methods.method import method
from groupwise.methods.terms import ScaleName, make_episode_term, make_history_terms, make_step_return
from groupwise.parts import Algorithm, Finite, Share


@method
def hgpo(
    *,
    depth: NonNegativeInt = 2,
    alpha: Annotated[float, Field(ge=0, le=64)] = 1.0,
    gamma: Share = 0.95,
    scale: ScaleName = "std",
    episode: bool = False,
    skip_average: bool = False,
    entropy_bonus: NonNegativeFloat | None = None,
    invalid_penalty: Finite = 0.1,
    refused_penalty: Finite = 0.0,
    peers: Peers = "any",
    reference: bool = False,
) -> Algorithm:
    """HGPO (2026, arXiv:2602.22817): a step is compared with steps that share its state and more and more of its
    history.

    A = sum_k w_k A_k / sum_k w_k,   w_k = (k+1)^alpha,   A_k over steps with equal (s_{t-k}, ..., s_t), k = 0..depth

    Choices: population standard deviation. In the paper `depth` is also the number of past steps in the prompts; here
    `rollout.history` sets that, and a run in which the two differ prints a notice. Levels on which the step is the only
    member, or has no such history, are left out of both sums. A level on which the step is exactly average counts; the
    paper's experiments leave it out (`skip_average=True`). `episode=True` adds the episode advantage at weight 1 and
    then weighs level k by (k+2)^alpha. `reference=True` is the released code: weights (k+2)^alpha always, levels of
    exactly 0 left out, 1e-6 added to the denominator, episode statistics over rows, and the penalty on the row's
    episode score too. The invalid penalty is on malformed responses, as released; `refused_penalty`, which is not
    published, is on invalid actions. A group may hold steps of a single rollout, as published; not with
    `peers="other_rollouts"`. Loss as for GiGPO: clip 0.2, dual clip 3, mean over tokens, KL 0.01 as k3. The release
    also has an entropy bonus of 0.001. So `entropy_bonus` is 0.001 by default if `reference=True`, and 0 if not.
    """
    spread = Deviation(ddof=0) if scale == "std" else NoScale()
    returns = make_step_return(gamma=gamma, invalid_penalty=invalid_penalty, refused_penalty=refused_penalty)
    first = 2 if episode or reference else 1
    terms = make_history_terms([float(first + k) ** alpha for k in range(depth + 1)], returns, spread, peers=peers)
    if episode:
        base = make_episode_term(scale=scale, invalid_penalty=invalid_penalty, reference=reference)
        terms = (Term(weight=1.0, of=base), *terms)
    if entropy_bonus is None:
        entropy_bonus = 0.001 if reference else 0.0
    bonus = (EntropyBonus(weight=entropy_bonus),) if entropy_bonus else ()
    return Algorithm(
        advantage=Blend(
            terms=terms,
            absent="zero_valued" if skip_average or reference else "not_compared",
            eps=1e-6 if reference else 0.0,
        ),
        loss=PolicyLoss(
            surrogate=Clip(dual=3.0), aggregate=TokenMean(), penalties=(Kl(estimator="k3", weight=0.01), *bonus)
        ),
    )
