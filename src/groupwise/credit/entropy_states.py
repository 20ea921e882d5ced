"""What parts that go by entropies remember: that of the beginning, of the update before, how far the run has come."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from groupwise.data.records import Task
from groupwise.data.segments import FloatArray
from groupwise.parts.stateful import ObservedUpdate

INITIAL_ENTROPY, LAST_ENTROPY, PROGRESS = "initial_entropy", "last_entropy", "down_sampling_progress"
"""Columns of the step table."""
UNKNOWN = -1.0
"""The initial entropy before the first update is over."""


class InitialEntropy:
    """The mean entropy of the first update's answers: the state of `ConflictTokens`."""

    def __init__(self) -> None:
        self._level = UNKNOWN

    def columns(self, tasks: Sequence[Task]) -> Mapping[str, FloatArray]:
        return {INITIAL_ENTROPY: np.full(len(tasks), self._level)}

    def observe(self, update: ObservedUpdate) -> None:
        """Take the level of the first update that has entropies; later ones change nothing."""
        steps = [step for trajectory in update.trajectories for step in trajectory.steps]
        entropies = [step.entropy[step.forced :] for step in steps if len(step.entropy) > step.forced]
        if self._level == UNKNOWN and entropies:
            self._level = math.fsum(math.fsum(entropy) / len(entropy) for entropy in entropies) / len(entropies)

    def state_dict(self) -> dict[str, Any]:
        return {"level": self._level}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._level = float(state["level"])


class LastEntropy:
    """The entropy of the update before, by the mean of -logp: the state of `TemperedCredit`."""

    def __init__(self) -> None:
        self._level = 0.0

    def columns(self, tasks: Sequence[Task]) -> Mapping[str, FloatArray]:
        return {LAST_ENTROPY: np.full(len(tasks), self._level)}

    def observe(self, update: ObservedUpdate) -> None:
        steps = [step for trajectory in update.trajectories for step in trajectory.steps]
        logps = [logp for step in steps for logp in step.logp_behaviour[step.forced :]]
        if logps:
            self._level = -math.fsum(logps) / len(logps)

    def state_dict(self) -> dict[str, Any]:
        return {"level": self._level}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._level = float(state["level"])


class DownSamplingProgress:
    """How far a run has come: the state of `DualDownSampling`."""

    def __init__(self, updates: int) -> None:
        self._updates, self._seen = updates, 0

    def columns(self, tasks: Sequence[Task]) -> Mapping[str, FloatArray]:
        return {PROGRESS: np.full(len(tasks), min(self._seen / self._updates, 1.0))}

    def observe(self, update: ObservedUpdate) -> None:
        self._seen += 1

    def state_dict(self) -> dict[str, Any]:
        return {"seen": self._seen}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._seen = int(state["seen"])
