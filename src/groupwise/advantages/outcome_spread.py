"""How mixed the outcomes of a task's attempts are, as a number that a loss may read beside credit.

Axes: S steps, A attempts.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from groupwise.advantages.baselines import centre_values
from groupwise.advantages.signals import EpisodeReturn
from groupwise.core.credit import Credit, Derivation
from groupwise.core.pairs import differ
from groupwise.core.parts.part import Part, name_of
from groupwise.core.parts.slots import SignalPart
from groupwise.core.segments import BoolArray, FloatArray, Segments
from groupwise.core.step_table import StepTable


class OutcomeSpread(Part, slot="estimator"):
    """The variance of a task's outcomes, as a share of the largest that their range allows: from 0 to 1.

        spread = 4 * var(R) / (max(R) - min(R))^2,   for outcomes 0 and 1: 4 p (1 - p), p the pass rate

    Source: ours, for `elastic_clip`, after ETR (arXiv:2601.03723). It is no credit: it stands in a channel
    (`algorithm.channels`), where a loss reads it. Each attempt counts once, with the mean of `of` over its steps;
    population variance. Attempts that all did equally well have a spread of exactly 0.
    """

    of: SignalPart = EpisodeReturn()
    """What an attempt brought."""

    def __call__(self, table: StepTable) -> Credit:
        value_A = table.attempts.mean(table.ask_once(self.of))
        tasks = Segments.of(table.task[table.attempts.first])
        high_M, low_M = tasks.high(value_A), tasks.low(value_A)
        is_mixed_M = [differ(high, low) for high, low in zip(high_M.tolist(), low_M.tolist(), strict=True)]
        share_A = centre_values(value_A, tasks) / tasks.spread(np.where(is_mixed_M, high_M - low_M, np.inf))
        spread_M = np.minimum(4 * tasks.sum(share_A**2) / tasks.size, 1.0)
        trace = SpreadTrace(
            values=spread_M[table.task], compared=(tasks.size > 1)[table.task], outcome=value_A, part=self
        )
        return Credit.of(table, trace)


@dataclass(frozen=True, eq=False, kw_only=True)
class SpreadTrace:
    """How a spread came about."""

    values: FloatArray
    """The spread of each step's task (S)."""
    compared: BoolArray
    """Whether the task had more than one attempt (S)."""
    outcome: FloatArray
    """What each attempt brought (A)."""
    part: OutcomeSpread
    """The estimator."""

    def derive(self, table: StepTable, step: int) -> Derivation:
        """The variance of the task's outcomes over a quarter of their range squared, in plain arithmetic."""
        first = table.attempts.first.tolist()
        members = [
            (place, float(value))
            for place, value in zip(first, self.outcome.tolist(), strict=True)
            if table.task[place] == table.task[step]
        ]
        values = [value for _, value in members]
        mean, width = math.fsum(values) / len(values), max(values) - min(values)
        variance = math.fsum((value - mean) ** 2 for value in values) / len(values)
        spread = 4 * variance / width**2 if differ(max(values), min(values)) else 0.0
        return Derivation(
            value=spread,
            formula=f"4 x {variance:.6g} / {width:.6g}^2 = {spread:.6g}, of {name_of(self.part.of)}",
            members=tuple(members),
        )
