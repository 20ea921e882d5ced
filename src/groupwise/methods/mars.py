from __future__ import annotations

from typing import ClassVar

import numpy as np

from groupwise.credit import (
    Centred,
    DistinctDeviation,
    DistinctMean,
    NoScale,
    Relative,
    ReturnToGo,
    StepRewardSignal,
    Whitened,
)
from groupwise.data.segments import IntArray, pair_labels
from groupwise.data.step_table import StepTable
from groupwise.losses import Clip, Kl, PolicyLoss, TokenMean
from groupwise.methods.method import method
from groupwise.methods.terms import ScaleName
from groupwise.parts import Algorithm, Part, Share


@method
def mars(*, gamma: Share = 1.0, scale: ScaleName = "none", whiten: bool = False) -> Algorithm:
    """MARS (github.com/thu-nics/MARS): each player's turns are compared with that player's own turns.

    R_t = discounted sum of (r - mean over player and game);   A_t = R_t - mean of the player's distinct values of R

    Choices: the game is the task, the player the column `role`. Rewards are centred per game, advantages over all games
    of the batch. Values are distinct if they differ at six decimals. The released gamma was not found; it is 1 here.
    `scale="std"` divides by the sample standard deviation of the distinct values; `whiten` whitens over the batch. Clip
    0.2 with a dual clip and KL 0.2 as k3, as released; the dual bound 3 is verl's, and the mean over tokens is ours.
    """
    turns = ReturnToGo(gamma=gamma, of=Centred(of=StepRewardSignal(), by=ByRole()), within="role")
    credit = Relative(
        by=ByPlayer(),
        of=turns,
        baseline=DistinctMean(),
        scale=DistinctDeviation() if scale == "std" else NoScale(),
        average="step",
    )
    return Algorithm(
        advantage=Whitened(of=credit) if whiten else credit,
        loss=PolicyLoss(surrogate=Clip(dual=3.0), aggregate=TokenMean(), penalties=(Kl(estimator="k3", weight=0.2),)),
    )


class ByRole(Part, slot="grouper"):
    """Compare steps of a task with the same role; a table without `role` has one player.

    Source: MARS (thu-nics), whose (player, game) pair is (role, task) here.
    """

    def __call__(self, table: StepTable) -> IntArray:
        if "role" not in table.extra:
            return table.task
        return pair_labels(table.task, table.codes("role"))


class ByPlayer(Part, slot="grouper"):
    """Compare all steps with the same role, across tasks; a table without `role` has one player.

    Source: MARS (thu-nics), which normalizes advantages per player over all games. This part mixes tasks by design. A
    step whose role is None has no group.
    """

    mixes_tasks: ClassVar[bool] = True

    def __call__(self, table: StepTable) -> IntArray:
        if "role" not in table.extra:
            return np.zeros(len(table), dtype=np.int64)
        return table.codes("role")
