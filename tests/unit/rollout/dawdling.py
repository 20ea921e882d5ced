"""An environment that takes its time over one task; workers import it by name."""

from __future__ import annotations

import time
from typing import Any

from groupwise import Task
from groupwise.envs import Identity
from groupwise.envs.environment import Observation, Outcome


class Dawdling(Identity):
    """Takes a second over the first step of one task."""

    slow: str

    def open(self, task: Task) -> Any:
        inner = super().open(task)
        return Dawdler(inner) if task.id == self.slow else inner


class Dawdler:
    def __init__(self, inner: Any) -> None:
        self._inner, self._nap = inner, 1.0

    def observe(self) -> Observation:
        shown: Observation = self._inner.observe()
        return shown

    def act(self, action: str) -> Outcome:
        time.sleep(self._nap)
        self._nap = 0.0
        outcome: Outcome = self._inner.act(action)
        return outcome
