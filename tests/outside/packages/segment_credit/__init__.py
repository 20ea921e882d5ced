"""An estimator of a user's own: rollouts are cut into segments of some steps, and segments are compared."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np
from pydantic import Field

from groupwise.extend import BoolArray, Credit, Derivation, FloatArray, IntArray, Part, Segments, StepTable


class BySegment(Part, slot="estimator"):
    """What a segment and those after it earn, less the mean over the segments of the same number in the task."""

    length: Annotated[int, Field(ge=1)] = 2
    """Steps of a segment."""

    def __call__(self, table: StepTable) -> Credit:
        number = table.step // self.length
        segments = Segments.of(table.rollout * (int(number.max(initial=0)) + 1) + number)
        earned = segments.sum(table.reward)
        rollout = table.rollout[segments.first]
        # A segment's return: what its rollout earned, less what the segments before it did.
        before = np.cumsum(earned) - earned
        start = before[np.searchsorted(rollout, rollout)]
        total = np.bincount(rollout, weights=earned)[rollout]
        returns = total - (before - start)
        task = table.task[segments.first]
        ranks = Segments.of(task * (int(number.max(initial=0)) + 1) + number[segments.first])
        credit = returns - ranks.mean(returns)[ranks.label]
        alone = ranks.size[ranks.label] == 1
        trace = SegmentTrace(
            values=np.where(alone, 0.0, credit)[segments.label],
            compared=~alone[segments.label],
            number=number,
            part=self,
        )
        return Credit.of(table, trace)


@dataclass(frozen=True, eq=False, kw_only=True)
class SegmentTrace:
    """How a segment came by its credit; it derives the number again, step by step."""

    values: FloatArray
    compared: BoolArray
    number: IntArray
    """Number of each step's segment within its rollout."""
    part: BySegment

    def derive(self, table: StepTable, step: int) -> Derivation:
        """The segment's return, less the mean of those with its number."""
        number, returns = int(self.number[step]), {}
        for other in range(len(table)):
            if table.task[other] == table.task[step] and self.number[other] == number:
                rollout = int(table.rollout[other])
                returns[rollout] = sum(
                    float(table.reward[k])
                    for k in range(len(table))
                    if table.rollout[k] == rollout and self.number[k] >= number
                )
        own, level = returns[int(table.rollout[step])], sum(returns.values()) / len(returns)
        value = own - level if len(returns) > 1 else 0.0
        return Derivation(
            value=value,
            formula=f"segment {number}: {own:.6g} - {level:.6g} over {len(returns)} rollouts = {value:.6g}",
            members=tuple(
                (k, returns[int(table.rollout[k])])
                for k in range(len(table))
                if table.task[k] == table.task[step] and self.number[k] == number
            ),
        )
