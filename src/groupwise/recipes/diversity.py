"""Recipes that pay for attempts of different kinds: after the polychromic objective."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from groupwise.advantages import SetShared
from groupwise.core.algorithm import Algorithm
from groupwise.losses import Clip, PolicyLoss, SequenceMean
from groupwise.recipes.recipe import recipe


@recipe
def after_polychromic(
    *,
    size: Annotated[int, Field(ge=2)] = 4,
    key: Annotated[str, Field(min_length=1)] = "action",
    variety: Literal["beyond_first", "share"] = "beyond_first",
) -> Algorithm:
    """After the polychromic objective (ours; arXiv:2509.25424 of 2025 has the sets): good and varied sets of attempts.

    f(S) = mean(R) * (kinds - 1) / (size - 1);   A_i = mean of f over the sets with i - mean of f over all sets

    Choices: f and that a set shares its advantage are the paper's; that all sets of a group count, in place of sets
    drawn at states on the way, is ours, and so is leaving out its KL to the behaviour policy. Attempts are of one kind
    where the column `key` says the same step by step: `action`, or for single answers the fact `answer`. Returns have
    to lie in [0, 1]; more attempts than `size` at a task. `variety="share"` is kinds / size. Clip 0.2; each answer
    counts the same; no KL. The plan `top_up` and filters that drop solved tasks are refused: variety is learnt there.
    """
    return Algorithm(
        advantage=SetShared(size=size, key=key, variety=variety),
        loss=PolicyLoss(surrogate=Clip(), aggregate=SequenceMean()),
    )
