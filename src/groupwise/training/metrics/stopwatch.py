"""How long each stage of an update took, told to the observer as it begins."""

from __future__ import annotations

import time

from groupwise.training.observer import RunObserver


class Stopwatch:
    """Seconds by stage."""

    def __init__(self, observer: RunObserver, number: int) -> None:
        self.seconds: dict[str, float] = {}
        self._observer, self._number = observer, number
        self._current, self._since = "", 0.0

    def begin_stage(self, name: str) -> None:
        """End the stage before and begin one."""
        now = time.perf_counter()
        if self._current:
            self.seconds[f"seconds/{self._current}"] = now - self._since
        self._current, self._since = name, now
        self._observer.on_stage(name, self._number)
