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
from groupwise.methods.method import method
from groupwise.parts import Algorithm, Count, Finite, LossPart, Part, PositiveShare, name_of
from groupwise.system.errors import ConfigError


@method
def seeupo(
    *, low: Finite = 0.2, high: Finite = 0.2, length: Literal["mean", "sum"] = "mean", stages: Count = 8
) -> Algorithm:
    """SeeUPO (2026, arXiv:2602.06554, from notes; its clip is ours): turns are trained in reverse, the last first.

    M = R - mean(R);   for t = T, ..., 1:  l = max(-M * s_t, -M * clip(s_t)),   then M <- M * pi_new(a_t) / pi_old(a_t)

    Choices: the advantage is not divided by the standard deviation, as the source's guarantee requires. s_t is one
    ratio for the answer of a turn. The source's clip range was not found, so it is the geometric mean, clipped at 0.2
    (ours); `length="sum"` is the product. M is multiplied by the product, bounded to [0.5, 2] (ours). If there are more
    turns than `stages`, neighbouring turns are trained together. Each stage makes as many optimizer steps as an update
    of other methods: set `training.learner.minibatches` accordingly. Each answer counts the same; no KL. See the loss
    `last_turn_first`.
    """
    of = PolicyLoss(
        ratio=SequenceRatio(unit="step", length=length), surrogate=Clip(low=low, high=high), aggregate=SequenceMean()
    )
    return Algorithm(advantage=dr_grpo().advantage, loss=LastTurnFirst(of=of, stages=stages))


class LastTurnFirst(Part, slot="loss"):
    """A policy loss that trains an update turn by turn, from the last turn to the first.

        M_(T+1) = A;   for t = T, ..., 1:  learn turn t with credit M_(t+1), then
        M_t = clamp(pi_new(a_t) / pi_old(a_t), min_factor, max_factor) * M_(t+1)

    Changes of later turns enter the advantage of earlier ones. pi(a_t) is the probability of a turn's whole response,
    measured after its optimizer steps; this costs one forward pass per stage. A rollout with fewer turns waits until
    its last one comes.

    Source: SeeUPO (2026, arXiv:2602.06554). If there are more turns than `stages`, neighbouring turns are trained
    together. Each stage makes as many optimizer steps as an update would (`passes` x `minibatches`) and has its own
    denominators. Rollouts of one turn give the loss `of`, bit-exact.
    """

    of: LossPart = PolicyLoss(ratio=SequenceRatio(), aggregate=SequenceMean())
    """The loss of the turns; a policy_loss without channels."""
    stages: Count = 8
    """Most stages of an update."""
    min_factor: PositiveShare = 0.5
    """The smallest factor from a turn to the advantage of earlier turns."""
    max_factor: Annotated[float, Field(ge=1, allow_inf_nan=False)] = 2.0
    """The largest one."""

    @model_validator(mode="after")
    def _is_a_policy_loss(self) -> LastTurnFirst:
        if not isinstance(self.of, PolicyLoss):
            raise ConfigError(f"of: {name_of(self.of)} has no ratios of turns to carry on; give a policy_loss")
        if self.of.unit == "trajectory":
            raise ConfigError(
                "of: it takes all turns of a rollout together, but here they are learned one after another; give a "
                'ratio of unit "step"'
            )
        if self.of.channels:
            raise ConfigError(
                f"of: it reads the channel {min(self.of.channels)!r}, but only the advantage is corrected for turns "
                "that were learned before; give a loss without channels"
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
        """The turns that are trained together, by their indices, stage after stage."""
        num = min(self.stages, num_turns)
        bounds = [stage * num_turns // num for stage in range(num + 1)]
        return [range(bounds[stage], bounds[stage + 1]) for stage in reversed(range(num))]

    def carry(self, columns: TokenColumns, totals: Totals) -> Tensor:
        """The log of the factor from the turns of a micro-batch to each trajectory's advantage (R); logs add up."""
        assert isinstance(self.of, PolicyLoss), "it is checked when it is made"
        columns = columns.select_trained(self.of.old)
        change_T = (columns.logp - columns.require(OLD_LOGP)).detach()
        steps = columns.units("step")
        bounded_T = steps.sum(change_T).clamp(math.log(self.min_factor), math.log(self.max_factor))
        share_T = bounded_T / steps.size(change_T)  # a turn's factor, distributed over its tokens
        return share_T.new_zeros(len(totals.trajectory_tokens)).index_add(0, columns.trajectory, share_T)

    def __call__(self, columns: TokenColumns, totals: Totals) -> LossResult:
        result: LossResult = self.of(columns, totals)
        return result
