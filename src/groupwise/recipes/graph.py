"""SALT: credit shared by the attempts that pass the same edge of the task's trajectory graph."""

from __future__ import annotations

from typing import Literal

from groupwise.advantages import Merged
from groupwise.core.algorithm import Algorithm
from groupwise.groups import ByEdge
from groupwise.recipes.episode import grpo, rloo
from groupwise.recipes.recipe import recipe


@recipe
def salt(
    *,
    history: int = 1,
    next_state: bool = True,
    count: Literal["attempt", "step"] = "attempt",
    base: Literal["grpo", "rloo"] = "grpo",
) -> Algorithm:
    """SALT (2025, arXiv:2510.20022): steps that several attempts share get their mean credit, others keep their own.

    A_{i,t} = mean of A_j over the attempts j through edge e_{i,t}, where two or more pass it, else A_i

    Choices (the paper's merge rule was not found, so these are ours): an edge is the last `history` + 1 states, the
    action and the next state; each attempt counts once. Reads the column `action`. Loss as for the base.
    """
    credit = grpo() if base == "grpo" else rloo()
    return Algorithm(
        advantage=Merged(of=credit.advantage, by=ByEdge(history=history, next_state=next_state), count=count),
        loss=credit.loss,
    )
