"""Steps of a task that share their state and the states before it."""

from __future__ import annotations

from typing import Annotated

import numpy as np
from pydantic import Field

from groupwise.core.parts.part import Part
from groupwise.core.segments import NOT_COMPARABLE, IntArray, pair_labels
from groupwise.core.step_table import StepTable


class ByHistory(Part, slot="grouper"):
    """Compare steps of a task that share their state and the `depth` states before it (HGPO's level groups).

        C_k(s_t) = (s_{t-k}, ..., s_{t-1}, s_t),   defined only if t >= k

    Source: HGPO, arXiv:2602.22817, the k-step context operator. Depth 0 is `ByState`.

    Choices: actions are not part of the key. A step whose k predecessors are not all in the table (the attempt began
    later, or a row is missing) has no group at depth k, nor has one with a state of None among the k+1.
    """

    depth: Annotated[int, Field(ge=0)]
    """Number of earlier states that must be equal."""

    def __call__(self, table: StepTable) -> IntArray:
        if self.depth == 0:
            return pair_labels(table.task, table.state)
        shallower = table.ask_once(ByHistory(depth=self.depth - 1))
        return pair_labels(shallower, _find_state_before(table, self.depth))


def _find_state_before(table: StepTable, steps: int) -> IntArray:
    """State of the step `steps` earlier in the same attempt (S); -1 where there is none."""
    earlier = np.roll(table.state, steps)
    return np.where(table.has_step_before(steps), earlier, NOT_COMPARABLE)
