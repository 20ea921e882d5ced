"""A rollout filter of one's own: rollouts that did what another one did are compared once."""

from __future__ import annotations

from collections.abc import Sequence

from groupwise.extend import Draw, Part, Trajectory


class Distinct(Part, slot="rollout_filter"):
    """Leave out the rollouts whose actions are those of an earlier rollout of the group."""

    def __call__(self, group: Sequence[Trajectory], *, draw: Draw) -> Sequence[Trajectory]:
        first = {tuple(step.action for step in rollout.steps): rollout for rollout in reversed(group)}
        return [rollout for rollout in group if rollout in first.values()]
