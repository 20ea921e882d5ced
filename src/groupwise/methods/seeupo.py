"""SeeUPO (2026, arXiv:2602.06554, from notes; its clip is ours)."""

from __future__ import annotations

import math
from typing import Annotated, Literal

from pydantic import Field, model_validator

from groupwise.data.samples import Totals
from groupwise.losses import (
    OLD_LOGP,
    Clip,
    LossResult,
    PolicyLoss,
    SequenceMean,
    SequenceRatio,
    Tensor,
    TokenColumns,
    Unit,
)
from groupwise.methods.dr_grpo import dr_grpo
from groupwise.methods.method import recipe
from groupwise.parts.algorithm import Algorithm
from groupwise.parts.part import Count, Finite, Part, PositiveShare, name_of
from groupwise.parts.slots import LossPart
from groupwise.system.errors import ConfigError


@recipe
def seeupo(
    *,
    low: Finite = 0.2,
    high: Finite = 0.2,
    length: Literal["mean", "sum"] = "mean",
    stages: Count = 8,
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


class LastTurnFirst(Part, slot="loss"):
    """A policy loss that makes an update's optimiser steps turn by turn, from the last turn to the first.

        M_(T+1) = A;   for t = T, ..., 1:  learn turn t with credit M_(t+1), then
        M_t = clamp(pi_new(a_t) / pi_old(a_t), min_factor, max_factor) * M_(t+1)

    What later turns have already become enters the credit of the earlier ones. pi(a_t) is the probability of a turn's
    whole response, measured once its steps are made; it costs a forward pass a stage. An attempt with fewer turns sits
    out until its last one comes.

    Source: SeeUPO (2026, arXiv:2602.06554), whose scheme this is. With more turns than `stages`, neighbouring turns are
    learnt together. Each stage makes as many optimiser steps as an update would (`passes` x `minibatches`) and has its
    own denominators. Attempts of one turn give the loss `of`, to the bit.
    """

    of: LossPart = PolicyLoss(ratio=SequenceRatio(), aggregate=SequenceMean())
    """The loss of the turns; a policy_loss without further channels of credit."""
    stages: Count = 8
    """How many stages an update has at most."""
    min_factor: PositiveShare = 0.5
    """The smallest factor that a turn puts on the credit of those before it."""
    max_factor: Annotated[float, Field(ge=1, allow_inf_nan=False)] = 2.0
    """The largest one."""

    @model_validator(mode="after")
    def _is_a_policy_loss(self) -> LastTurnFirst:
        if not isinstance(self.of, PolicyLoss):
            raise ConfigError(f"of: {name_of(self.of)} has no ratios of turns to carry on; give a policy_loss")
        if self.of.unit == "trajectory":
            raise ConfigError(
                "of: it takes all turns of an attempt together, and here they are learnt one after the other; give a "
                'ratio of unit "step"'
            )
        if self.of.channels:
            raise ConfigError(
                f"of: it reads the channel {min(self.of.channels)!r}, and only the credit itself follows what later "
                "turns became; give a loss without channels"
            )
        return self

    @property
    def needs(self) -> frozenset[str]:
        assert isinstance(self.of, PolicyLoss), "it is checked when it is made"
        return self.of.needs if self.of.old == "engine" else self.of.needs | {OLD_LOGP}

    @property
    def columns(self) -> frozenset[str]:
        return getattr(self.of, "columns", frozenset())

    @property
    def unit(self) -> Unit:
        return "step"

    def order_turns(self, num_turns: int) -> list[range]:
        """The turns that are learnt together, by their indices, stage after stage."""
        num = min(self.stages, num_turns)
        bounds = [stage * num_turns // num for stage in range(num + 1)]
        return [range(bounds[stage], bounds[stage + 1]) for stage in reversed(range(num))]

    def carry(self, columns: TokenColumns, totals: Totals) -> Tensor:
        """The log of the factor that the turns of a micro-batch put on each trajectory's credit (R); logs add up."""
        assert isinstance(self.of, PolicyLoss), "it is checked when it is made"
        columns = self.of.select_columns(columns)
        change_T = (columns.logp - columns.require(OLD_LOGP)).detach()
        steps = columns.units("step")
        bounded_T = steps.sum(change_T).clamp(math.log(self.min_factor), math.log(self.max_factor))
        share_T = bounded_T / steps.size(change_T)  # a turn's factor, dealt out to its tokens
        return share_T.new_zeros(len(totals.trajectory_tokens)).index_add(0, columns.trajectory, share_T)

    def __call__(self, columns: TokenColumns, totals: Totals) -> LossResult:
        result: LossResult = self.of(columns, totals)
        return result
