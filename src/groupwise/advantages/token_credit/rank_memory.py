"""What `rank_bonus` remembers: moving averages of effective rank, its velocity and its acceleration."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from groupwise.core.parts.stateful import ObservedUpdate
from groupwise.core.records import Task
from groupwise.core.segments import FloatArray

RANKS = ("effective_rank", "rank_velocity", "rank_acceleration")
"""Facts of a step that the measure `effective_rank` writes."""
LEVELS = ("average_effective_rank", "average_rank_velocity", "average_rank_acceleration")
"""Columns of the step table: the moving average of each."""
UNKNOWN = -1.0
"""The average rank before the first update is over; a rank is never negative."""


class RankLevels:
    """Moving averages over updates: the state of `RankBonus`."""

    def __init__(self, new_share: float) -> None:
        self._new_share = new_share
        self._levels = (UNKNOWN, 0.0, 0.0)

    def columns(self, tasks: Sequence[Task]) -> Mapping[str, FloatArray]:
        """The averages, the same for all tasks."""
        return {name: np.full(len(tasks), level) for name, level in zip(LEVELS, self._levels, strict=True)}

    def observe(self, update: ObservedUpdate) -> None:
        """Let the means over an update's measured steps join the averages; the first ones begin them."""
        steps = [step for trajectory in update.trajectories for step in trajectory.steps]
        measured = [step.facts for step in steps if all(name in step.facts for name in RANKS)]
        if not measured:
            return
        means = [math.fsum(facts[name] for facts in measured) / len(measured) for name in RANKS]
        if self._levels[0] == UNKNOWN:
            self._levels = (means[0], means[1], means[2])
        else:
            keep, new = 1.0 - self._new_share, self._new_share
            rank, velocity, acceleration = (
                keep * level + new * mean for level, mean in zip(self._levels, means, strict=True)
            )
            self._levels = (rank, velocity, acceleration)

    def state_dict(self) -> dict[str, Any]:
        """The averages."""
        return {"levels": list(self._levels)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from them."""
        rank, velocity, acceleration = (float(level) for level in state["levels"])
        self._levels = (rank, velocity, acceleration)
