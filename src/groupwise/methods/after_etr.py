from __future__ import annotations

import math
from typing import Annotated, ClassVar

import numpy as np
from pydantic import Field, NonNegativeFloat, PositiveFloat

from groupwise.credit import EpisodeReturn, StepTrace, centre_values, list_rollouts
from groupwise.data.credit import Credit, Derivation
from groupwise.data.samples import differ
from groupwise.data.segments import Segments
from groupwise.data.step_table import StepTable
from groupwise.losses import PolicyLoss, SequenceMean, Tensor, TokenColumns, TokenLoss
from groupwise.methods.grpo import grpo
from groupwise.methods.method import method
from groupwise.parts import Algorithm, Finite, Part, SignalPart, name_of


@method
def after_etr(*, low: Finite = 0.2, high: Finite = 0.2, by_credit: Finite = 0.3, by_spread: Finite = 0.3) -> Algorithm:
    """After ETR (ours; arXiv:2601.03723 of 2026 has the idea): GRPO with a wider clip range where the signal is strong.

    E = clamp(micro(|A|) * macro(4 p (1 - p)), 0.5, 2);   l = max(-A * rho, -A * clip(rho, 1 - E low, 1 + E high))

    Choices: only the idea was found: the range follows the size of a token's advantage and how mixed its group is. The
    factors are ours, see the surrogate `elastic_clip`. p is the pass rate; for graded returns 4 p (1 - p) is their
    variance over a quarter of their range squared. Each answer counts the same. No KL.
    """
    surrogate = ElasticClip(low=low, high=high, by_credit=by_credit, by_spread=by_spread)
    return Algorithm(
        advantage=grpo().advantage,
        channels={"spread": OutcomeSpread()},
        loss=PolicyLoss(surrogate=surrogate, aggregate=SequenceMean()),
    )


class OutcomeSpread(Part, slot="estimator"):
    """The variance of a task's outcomes as a fraction of the largest that their range allows: from 0 to 1.

        spread = 4 * var(R) / (max(R) - min(R))^2,   for outcomes 0 and 1: 4 p (1 - p), p the pass rate

    Source: ours, for `elastic_clip`, after ETR (arXiv:2601.03723). It is not an advantage but a channel
    (`algorithm.channels`), which a loss reads. Each rollout counts once, with the mean of `of` over its steps;
    population variance. If all rollouts did equally well, the spread is exactly 0.
    """

    of: SignalPart = EpisodeReturn()
    """The outcome of a rollout."""

    def __call__(self, table: StepTable) -> Credit:
        value_A = table.rollouts.mean(table.ask_once(self.of))
        tasks = Segments.of(table.task[table.rollouts.first])
        high_M, low_M = tasks.high(value_A), tasks.low(value_A)
        is_mixed_M = [differ(high, low) for high, low in zip(high_M.tolist(), low_M.tolist(), strict=True)]
        share_A = centre_values(value_A, tasks) / tasks.spread(np.where(is_mixed_M, high_M - low_M, np.inf))
        spread_M = np.minimum(4 * tasks.sum(share_A**2) / tasks.size, 1.0)
        values, compared = spread_M[table.task], (tasks.size > 1)[table.task]
        return Credit.of(table, StepTrace(values=values, compared=compared, part=self))

    def derive(self, table: StepTable, trace: StepTrace, step: int) -> Derivation:
        members = list_rollouts(table, table.rollouts.mean(table.ask_once(self.of)).tolist(), step)
        values = [value for _, value in members]
        mean, width = math.fsum(values) / len(values), max(values) - min(values)
        variance = math.fsum((value - mean) ** 2 for value in values) / len(values)
        spread = 4 * variance / width**2 if differ(max(values), min(values)) else 0.0
        formula = f"4 x {variance:.6g} / {width:.6g}^2 = {spread:.6g}, of {name_of(self.of)}"
        return Derivation(value=spread, formula=formula, members=members)


SPREAD = "spread"
"""The channel that says how mixed the outcomes of a token's group are, from 0 to 1."""


class ElasticClip(Part, slot="surrogate"):
    """The clipped surrogate with one range per token: wider for large advantages and mixed groups, else narrower.

        micro = 1 + by_credit * (2 min(|A|, full_credit) / full_credit - 1)
        macro = 1 + by_spread * (2 spread - 1),   spread from 0 (all equal) to 1 (half and half), by group
        E     = clamp(micro * macro, 0.5, 2);   l = max(-A * rho, -A * clip(rho, 1 - E low, 1 + E high))

    Source: ours, after ETR (2026, arXiv:2601.03723). E has no gradient. `by_credit = by_spread = 0` is `Clip`. The
    spread is a channel, `outcome_spread`.
    """

    scales_with_credit: ClassVar[bool] = True
    is_trust_region: ClassVar[bool] = True
    channels: ClassVar[frozenset[str]] = frozenset({SPREAD})

    low: NonNegativeFloat = 0.2
    """How far below 1 a ratio may go, before it is stretched."""
    high: NonNegativeFloat = 0.2
    """How far above 1 a ratio may go, before it is stretched."""
    by_credit: Annotated[float, Field(ge=0, lt=1)] = 0.3
    """How much the size of a token's advantage matters."""
    by_spread: Annotated[float, Field(ge=0, lt=1)] = 0.3
    """How much the mix of the group's outcomes matters."""
    full_credit: PositiveFloat = 2.0
    """Above this advantage the range does not grow."""

    def __call__(self, ratio_T: Tensor, columns: TokenColumns) -> TokenLoss:
        A_T = columns.advantage
        micro_T = 1 + self.by_credit * (2 * A_T.abs().clamp(max=self.full_credit) / self.full_credit - 1)
        macro_T = 1 + self.by_spread * (2 * columns.channel(SPREAD) - 1)
        stretch_T = (micro_T * macro_T).clamp(0.5, 2.0)
        low_T, high_T = 1 - self.low * stretch_T, 1 + self.high * stretch_T
        loss_T = (-A_T * ratio_T).maximum(-A_T * ratio_T.clamp(low_T, high_T))
        ratio_T = ratio_T.detach()
        clipped = {"high": (A_T > 0) & (ratio_T > high_T), "low": (A_T < 0) & (ratio_T < low_T)}
        return TokenLoss(loss=loss_T, clipped=clipped)
