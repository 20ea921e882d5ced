"""Credit by temporal differences: what a step changed in the value of its situation, not what came of it in the end.

Axis: S steps.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, Literal

import numpy as np
from pydantic import Field

from groupwise.advantages.signals import discount
from groupwise.core.credit import Credit, Derivation, Trace
from groupwise.core.own_rollout import meets_others
from groupwise.core.parts.part import Part
from groupwise.core.parts.slots import EstimatorPart, SignalPart
from groupwise.core.records import StopReason
from groupwise.core.segments import BoolArray, FloatArray
from groupwise.core.step_table import StepTable


class TemporalDifferences(Part, slot="estimator"):
    """Credit a step with what it changed in the value of the situation, and with a fading share of later changes.

        V_t     = R_t - D_t,   D = the credit of `of`, a return less what its situation is worth
        delta_t = r_t + gamma * V_(t+1) - V_t,   V = 0 after the end,   r_t = R_t - gamma * R_(t+1)
        A_t     = delta_t + gamma * lam * A_(t+1)

    It is computed as A_t = D_t - gamma * (1 - lam) * (D_(t+1) + gamma * lam * D_(t+2) + ...), which is the same and
    loses no digits to a common level of returns: a step is spared what surprised after it.

    Source: GAE (Schulman et al. 2015, arXiv:1506.02438), with values of groups in place of a critic's, as in GAGPO
    (arXiv:2605.13217). **Choices.** A step that `of` compares with nobody is worth its own return. An attempt that a
    limit cut off ends in nothing, or in the value of its last state once more (`truncated="value"`, which reads the
    column `stop`). lam = 1 is `of` itself. A step is compared where a group says something of any of the values in it.
    """

    of: EstimatorPart
    """Returns less what their situations are worth, in units of the return: `relative` with `no_scale`, or a blend."""
    returns: SignalPart
    """The discounted return that `of` compares."""
    gamma: Annotated[float, Field(ge=0, le=1)]
    """Discount from one step to the next, that of `returns`."""
    lam: Annotated[float, Field(ge=0, le=1)]
    """Share of the next step's credit that a step has too: 0 = one difference, 1 = everything that followed."""
    truncated: Literal["zero", "value"] = "zero"
    """What follows an attempt that a limit cut off: nothing, or the value of the state it was last in."""

    def __call__(self, table: StepTable) -> Credit:
        inner, returns = self.of(table).trace, table.ask_once(self.returns)
        values = inner.values - self.gamma * (1 - self.lam) * self._sum_later(table, inner.values)
        expected = np.zeros(len(table))
        if self.truncated == "value":
            is_cut = table.column("stop") == StopReason.TRUNCATED
            expected = np.where(is_cut, returns - inner.values, 0.0)
            values = values + self.gamma * discount(expected, table.attempt, self.gamma * self.lam)
        trace = DifferenceTrace(
            values=values,
            compared=self.find_reached(table, inner.compared),
            of=inner,
            returns=returns,
            expected=expected,
            part=self,
        )
        return Credit.of(table, trace)

    def find_reached(self, table: StepTable, marked: BoolArray) -> BoolArray:
        """Which steps have credit that a value of one of the marked steps is in (S)."""
        seen = marked.astype(np.float64)
        reached = marked | (self.gamma * (1 - self.lam) * self._sum_later(table, seen) > 0)
        if self.truncated == "value":
            seen_end = np.where(table.column("stop") == StopReason.TRUNCATED, seen, 0.0)
            reached |= self.gamma * discount(seen_end, table.attempt, self.gamma * self.lam) > 0
        return reached

    def _sum_later(self, table: StepTable, surprises: FloatArray) -> FloatArray:
        """What the steps after each one hold, each later one times gamma * lam (S); 0 for an attempt's last step."""
        sums = discount(surprises, table.attempt, self.gamma * self.lam)
        is_followed = table.attempt[1:] == table.attempt[:-1]
        return np.append(np.where(is_followed, sums[1:], 0.0), np.zeros(len(sums[:1])))


@dataclass(frozen=True, eq=False, kw_only=True)
class DifferenceTrace:
    """How temporal differences came about."""

    values: FloatArray
    """Credit of each step (S)."""
    compared: BoolArray
    """Whether a group told one of the values in it (S)."""
    of: Trace
    """Trace of the returns less what their situations are worth."""
    returns: FloatArray
    """The return of each step (S)."""
    expected: FloatArray
    """What is expected after each step that a limit cut off (S), else 0."""
    part: TemporalDifferences
    """The estimator."""

    def meets_others(self, table: StepTable) -> BoolArray | None:
        """Which steps have a value in their credit that another rollout took part in (S)."""
        inner = meets_others(table, self.of)
        return None if inner is None else self.part.find_reached(table, inner)

    def derive(self, table: StepTable, step: int) -> Derivation:
        """One difference after the other, each from a reward and two values."""
        part = self.part
        path = [place for place in range(step, len(table)) if table.attempt[place] == table.attempt[step]]
        returns = [float(self.returns[place]) for place in path]
        worth = [float(self.returns[place] - self.of.values[place]) for place in path]
        following = zip([*returns[1:], 0.0], [*worth[1:], float(self.expected[path[-1]])], strict=True)
        differences = [
            math.fsum((now, -part.gamma * later, part.gamma * later_worth, -value))
            for now, value, (later, later_worth) in zip(returns, worth, following, strict=True)
        ]
        shares = [(part.gamma * part.lam) ** num for num in range(len(path))]
        value = math.fsum(share * difference for share, difference in zip(shares, differences, strict=True))
        shown = " + ".join(
            f"{s:.6g} x {d:.6g}" for s, d in zip(shares, differences, strict=True) if s or s is shares[0]
        )
        return Derivation(
            value=value,
            formula=f"{shown} = {value:.6g}",
            members=tuple(zip(path, worth, strict=True)),
            terms=((1.0, self.of),),
        )
