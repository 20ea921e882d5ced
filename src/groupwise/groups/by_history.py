"""Steps of a task that share their state and the states before it."""

from __future__ import annotations

from typing import Annotated

import numpy as np
from pydantic import Field

from groupwise.core.parts.part import Part
from groupwise.core.segments import NOT_COMPARABLE, IntArray, pair_labels
from groupwise.core.step_table import StepTable
from groupwise.groups.peers import Peers, require_peers


class ByHistory(Part, slot="grouper"):
    """Compare steps of a task that share their state and the `depth` states before it (HGPO's level groups).

        C_k(s_t) = (s_{t-k}, ..., s_{t-1}, s_t),   defined only if t >= k

    Source: HGPO, arXiv:2602.22817, the k-step context operator. Depth 0 is `ByState`.

    Choices: actions are not part of the key. A step whose k predecessors are not all in the table (the attempt began
    later, or a row is missing) has no group at depth k, nor has one with a state of None among the k+1. A group may
    hold steps of a single rollout, as published; `peers = "other_rollouts"` takes such groups apart, at this depth. It
    takes nothing out of the groups that remain, as in `ByState`.
    """

    depth: Annotated[int, Field(ge=0)]
    """Number of earlier states that must be equal."""
    peers: Peers = "any"
    """Who must be in a group: `any` two steps, or `other_rollouts` too; else its steps are compared with none."""

    def __call__(self, table: StepTable) -> IntArray:
        if self.peers != "any":
            return require_peers(table, table.ask_once(ByHistory(depth=self.depth)), self.peers)
        if self.depth == 0:
            return pair_labels(table.task, table.state)
        shallower = table.ask_once(ByHistory(depth=self.depth - 1))
        return pair_labels(shallower, _find_state_before(table, self.depth))


def _find_state_before(table: StepTable, steps: int) -> IntArray:
    """State of the step `steps` earlier in the same attempt (S); -1 where there is none."""
    earlier = np.roll(table.state, steps)
    return np.where(table.has_step_before(steps), earlier, NOT_COMPARABLE)
