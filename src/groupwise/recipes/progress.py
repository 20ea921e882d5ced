"""Recipes that pay steps for progress under a prover: PAV."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from groupwise.advantages import ColumnSignal, NoBaseline, NoScale, Relative, Sum, Term
from groupwise.core.algorithm import Algorithm
from groupwise.groups import ByTask
from groupwise.losses import Clip, PolicyLoss, TokenMean
from groupwise.recipes.episode import rloo
from groupwise.recipes.recipe import Finite, recipe
from groupwise.rollout.measures import ProverValues

Count = Annotated[int, Field(ge=1)]


@recipe
def pav(*, alpha: Finite = 0.5, best_of: Count = 4, continuations: Count = 8) -> Algorithm:
    """PAV (Setlur et al. 2024, arXiv:2410.08146): RLOO, plus what each step changed in the chance of a prover.

    A_t = R - mean(other R) + alpha * (V_after - V_before),   V = success of the best of `best_of` attempts from there

    Choices: those of the part `prover_values`, which plays `continuations` attempts from a copy of the world before
    each step; the paper trains a verifier to say what they would say. Each step has its own progress alone: added up
    over the steps that follow, all but the ends would cancel. alpha is ours (the paper's was not found): added up over
    an attempt, progress is its success less what was expected, so that it weighs half as much as the outcome. alpha = 0
    is `rloo`'s credit, and nothing is played. Success is 0 or 1, so rewards should be of that size. Clip 0.2, mean
    over tokens, no KL.
    """
    loss = PolicyLoss(surrogate=Clip(), aggregate=TokenMean())
    if alpha == 0:
        return Algorithm(advantage=rloo().advantage, loss=loss)
    progress = Relative(
        by=ByTask(),
        of=ColumnSignal(name="prover_progress"),
        baseline=NoBaseline(),
        scale=NoScale(),
        average="step",
        alone="raw",
    )
    return Algorithm(
        advantage=Sum(terms=(Term(weight=1.0, of=rloo().advantage), Term(weight=alpha, of=progress))),
        measures=(ProverValues(best_of=best_of, continuations=continuations),),
        loss=loss,
    )
