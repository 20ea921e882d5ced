"""How far a run has come, for parts whose shares change on the way."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from groupwise.core.parts.stateful import ObservedUpdate
from groupwise.core.records import Task
from groupwise.core.segments import FloatArray

COLUMN = "down_sampling_progress"
"""Column of the step table."""


class DownSamplingProgress:
    """How far a run has come: the state of `DualDownSampling`."""

    def __init__(self, updates: int) -> None:
        self._updates, self._seen = updates, 0

    def columns(self, tasks: Sequence[Task]) -> Mapping[str, FloatArray]:
        """The share of the updates that are over, the same for all tasks."""
        return {COLUMN: np.full(len(tasks), min(self._seen / self._updates, 1.0))}

    def observe(self, update: ObservedUpdate) -> None:
        """Count an update."""
        self._seen += 1

    def state_dict(self) -> dict[str, Any]:
        """The updates that are over."""
        return {"seen": self._seen}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on counting."""
        self._seen = int(state["seen"])
