"""Recipes whose loss holds the policy to something beside its credit: EPO."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from groupwise.core.algorithm import Algorithm
from groupwise.losses import Clip, EntropyCorridor, Kl, PolicyLoss, SequenceMean
from groupwise.recipes.episode import grpo
from groupwise.recipes.recipe import Finite, recipe


@recipe
def epo(
    *,
    weight: Finite = 0.001,
    smoothing: Finite = 1.0,
    low: Finite = 0.0,
    high: Finite = 2.0,
    outside: Finite = 0.1,
    updates: Annotated[int, Field(gt=0)] = 150,
    form: Literal["hinge", "constant"] = "hinge",
) -> Algorithm:
    """EPO (Xu et al. 2025, arXiv:2509.22576; its gradient is ours): GRPO with a bonus for entropy near its own past.

    loss = GRPO - weight * (H - smoothing * w(e) * P);   P > 0 where H is outside (low, high) x the usual entropy

    Choices: what is usual is the mean of the updates before, by the index of a step; w fades over `updates`, which
    should be those of the run. P grows with the distance from the corridor; `form="constant"` is the release's 0.1 for
    all outside it, which moves nothing. The release names (0, 2), (0.5, 1.5) and (0.8, 1.2) for (low, high), and 0.05
    for `outside` in ScienceWorld. What is remembered is kept in checkpoints and in the journal. See `entropy_corridor`.
    """
    corridor = EntropyCorridor(
        weight=weight, smoothing=smoothing, low=low, high=high, outside=outside, updates=updates, form=form
    )
    return Algorithm(
        advantage=grpo().advantage,
        loss=PolicyLoss(surrogate=Clip(), aggregate=SequenceMean(), penalties=(Kl(weight=0.001), corridor)),
    )
