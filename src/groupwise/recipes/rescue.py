"""R^3: groups whose attempts all did equally well still teach, by replay, reflection and ranking rewards."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from groupwise.advantages import Blend, Deviation, EpisodeReturn, Penalised, Relative, ReturnToGo
from groupwise.core.algorithm import Algorithm
from groupwise.groups import ByTask, CrossContextReplay, HistoryKeyedReplay
from groupwise.losses import Clip, Kl, PolicyLoss, SequenceMean
from groupwise.recipes.history import hgpo
from groupwise.recipes.recipe import Share, recipe
from groupwise.recipes.terms import make_history_terms
from groupwise.rewards import EntropyRanking
from groupwise.rollout import Reflection

Tau = Annotated[float, Field(ge=0)]
Factor = Annotated[float, Field(gt=0)]


@recipe
def r3(
    *,
    with_replay: bool = True,
    with_reflection: bool = True,
    with_ranking: bool = True,
    k: Annotated[int, Field(ge=0)] = 0,
    alpha: Factor = 1.0,
    tau: Tau = 0.25,
    p: Annotated[float, Field(gt=0, le=1)] = 0.2,
    best: Factor = 0.5,
) -> Algorithm:
    """R^3 (2026, arXiv:2601.19620): groups without spread recall past attempts, reflect on failures, or are ranked.

    A_i = (R_i - mean(G + G_past)) / (alpha * std(G + G_past) + 1e-6), alpha = 1 where nothing was recalled

    Choices: the paper gives no values, and no code is public: k, alpha, tau, p and best are ours. So is the ratio to
    the log-prob that a recalled token was sampled with; the paper stores none, and by its letter the ratio begins at 1
    (`replay.ratio = "recomputed"`). alpha acts on every member of a mixed group. A failed answer that ended by itself
    earns the mean of the ranked ones: at 0, as the paper has it, being cut off pays, and our runs learnt to be cut off.
    `best` bounds nothing by itself, for in a group without success the deviation cancels it (the scale
    `fixed_unless_solved` does not). Each of the three can be switched off; without them, or with nothing to recall, it
    is GRPO with the population deviation. The paper's reward for brevity is the reward `brevity` in `rewards`. Clip
    0.2, each answer counts the same, KL 0.001 as k3.
    """
    credit = Relative(
        by=ByTask(),
        of=EpisodeReturn(),
        scale=Deviation(ddof=0),
        mixed_scale=Deviation(ddof=0, factor=alpha) if with_replay else None,
    )
    return Algorithm(
        advantage=credit,
        shapers=(EntropyRanking(p=p, best=best),) if with_ranking else (),
        replay=CrossContextReplay(k=k) if with_replay else None,
        guidance=Reflection(tau=tau) if with_reflection else None,
        loss=PolicyLoss(surrogate=Clip(), aggregate=SequenceMean(), penalties=(Kl(estimator="k3", weight=0.001),)),
    )


@recipe
def r3_grpo_ablation(
    *, with_replay: bool = False, with_reflection: bool = False, with_ranking: bool = False
) -> Algorithm:
    """R^3, taken apart (2026, arXiv:2601.19620): the same base with each of the three mechanisms off until named.

    A_i = (R_i - mean(R)) / (std(R) + eps) with all three off

    Choices: as for R^3. One switch on shows what that mechanism alone does.
    """
    return r3(with_replay=with_replay, with_reflection=with_reflection, with_ranking=with_ranking)


@recipe
def r3_hgpo(
    *,
    depth: Annotated[int, Field(ge=0)] = 2,
    gamma: Share = 0.95,
    with_replay: bool = True,
    with_reflection: bool = True,
    with_ranking: bool = False,
    alpha: Factor = 1.0,
    tau: Tau = 0.25,
    best: Factor = 0.5,
) -> Algorithm:
    """R^3 joined with HGPO (ours, after arXiv:2601.19620 and arXiv:2602.22817): steps recall others of like history.

    A = sum_d w_d A_d / sum_d w_d,   A_d over own and recalled steps with equal (s_{t-d}, ..., s_t),   w_d = d + 1

    Choices: none of this is in either paper. Replay looks for contexts in which a step has nobody to differ from, and
    recalls the past attempts that fill most of them; reflection shows a failed attempt as what was seen and done, for
    at most two tasks an update; ranking, off by default since it slowed our runs down, takes all failed attempts, by
    the mean entropies of their steps. Groups with recalled steps are divided by alpha times their deviation. A
    malformed response costs nothing: divided by the deviation of a group without success, the penalty would be all that
    is learnt. With all three off it is HGPO without that penalty.
    """
    mixed = Deviation(ddof=0, factor=alpha) if with_replay else None
    weights = [float(d + 1) for d in range(depth + 1)]
    terms = make_history_terms(weights, Penalised(of=ReturnToGo(gamma=gamma), penalty=0.0), Deviation(ddof=0), mixed)
    return Algorithm(
        advantage=Blend(terms=terms),
        shapers=(EntropyRanking(best=best, who="failed", per="step"),) if with_ranking else (),
        replay=HistoryKeyedReplay(depth=depth, gamma=gamma) if with_replay else None,
        guidance=Reflection(tau=tau, prompt="attempt", max_tasks=2) if with_reflection else None,
        loss=hgpo().loss,
    )
