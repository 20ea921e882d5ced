"""Recipes that pay for attempts of different kinds: after the polychromic objective, after DSDR."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from groupwise.advantages import EpisodeReturn, FlooredDeviation, Relative, SetShared
from groupwise.core.algorithm import Algorithm
from groupwise.groups import ByTask
from groupwise.losses import Clip, EntropyShare, PolicyLoss, SequenceMean
from groupwise.recipes.recipe import Finite, recipe
from groupwise.rewards import DiversityBonus
from groupwise.rollout.measures import RightDiversity


@recipe
def after_polychromic(
    *,
    size: Annotated[int, Field(ge=2)] = 4,
    key: Annotated[str, Field(min_length=1)] = "action",
    variety: Literal["beyond_first", "share"] = "beyond_first",
) -> Algorithm:
    """After the polychromic objective (ours; arXiv:2509.25424 of 2025 has the sets): good and varied sets of attempts.

    f(S) = mean(R) * (kinds - 1) / (size - 1);   A_i = mean of f over the sets with i - mean of f over all sets

    Choices: mean(R) times a diversity, and that a set shares its advantage, are the paper's; (kinds - 1) / (size - 1)
    is ours, and `variety="share"`, kinds / size, the fraction of distinct ones. That all sets of a group count, in
    place of sets drawn at states on the way, is ours, and so is leaving out its KL to the behaviour policy. Attempts
    are of one kind where the column `key` says the same step by step: `action`, or for single answers the fact
    `answer`. Returns have to lie in [0, 1]; more attempts than `size` at a task. Clip 0.2; each answer counts the same;
    no KL. The plan `top_up` and filters that drop solved tasks are refused: variety is learnt there.
    """
    return Algorithm(
        advantage=SetShared(size=size, key=key, variety=variety),
        loss=PolicyLoss(surrogate=Clip(), aggregate=SequenceMean()),
    )


@recipe
def after_dsdr(
    *,
    bonus: Finite = 0.1,
    cap: Finite = 0.5,
    temperature: Finite = 0.1,
    entropy: Finite = 0.001,
    floor: Finite = 0.05,
    solved_above: Finite = 0.5,
) -> Algorithm:
    """After DSDR (ours; arXiv:2602.19895 of 2026 has both scales): right answers that differ are paid and explore more.

    R_i = r_i + bonus * min(D_i, cap);   A_i = (R_i - mean(R)) / max(std(R) + 1e-6, floor);   l - entropy w_i rho H

    Choices: a bounded bonus for right answers by embeddings and formulas, and entropy allotted by a softmax of D are
    the paper's, by notes on it; embeddings of the policy's own hidden states, lines with `=` as formulas and all
    numbers are ours. See the measure `right_diversity`, the shaper `diversity_bonus` and the penalty `entropy_share`.
    Where all are right the bonus alone tells attempts apart: the floor keeps that small. Clip 0.2; each answer counts
    the same; no KL. The plan `top_up` and filters that drop solved tasks are refused: there diversity is learnt.
    """
    credit = Relative(by=ByTask(), of=EpisodeReturn(), scale=FlooredDeviation(floor=floor))
    penalties = (EntropyShare(weight=entropy),) if entropy else ()
    return Algorithm(
        advantage=credit,
        measures=(RightDiversity(temperature=temperature, solved_above=solved_above),),
        shapers=(DiversityBonus(weight=bonus, cap=cap),),
        loss=PolicyLoss(surrogate=Clip(), aggregate=SequenceMean(), penalties=penalties),
    )
