"""Recipes that learn the turns of attempts one after the other: SeeUPO."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from groupwise.core.algorithm import Algorithm
from groupwise.losses import Clip, LastTurnFirst, PolicyLoss, SequenceMean, SequenceRatio
from groupwise.recipes.episode import dr_grpo
from groupwise.recipes.recipe import Finite, recipe


@recipe
def seeupo(
    *,
    low: Finite = 0.2,
    high: Finite = 0.2,
    length: Literal["mean", "sum"] = "mean",
    stages: Annotated[int, Field(ge=1)] = 8,
) -> Algorithm:
    """SeeUPO (2026, arXiv:2602.06554, from notes; its clip is ours): turns are learnt in reverse, the last first.

    M = R - mean(R);   for t = T, ..., 1:  l = max(-M * s_t, -M * clip(s_t)),   then M <- M * pi_new(a_t) / pi_old(a_t)

    Choices: credit is not divided by the deviation, as the source's guarantee asks. s_t is one ratio for the answer of
    a turn; the source's clip range was not found, so it is the geometric mean, clipped at 0.2 (ours); `length="sum"` is
    the product. What M takes on is the product, bounded to [0.5, 2] (ours). More turns than `stages` are learnt in
    neighbouring ones together. Each stage makes as many optimiser steps as an update of other recipes: give
    `training.learner.minibatches` accordingly. Each answer counts the same; no KL. See the loss `last_turn_first`.
    """
    of = PolicyLoss(
        ratio=SequenceRatio(unit="step", length=length), surrogate=Clip(low=low, high=high), aggregate=SequenceMean()
    )
    return Algorithm(advantage=dr_grpo().advantage, loss=LastTurnFirst(of=of, stages=stages))
