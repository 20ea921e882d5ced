"""A line wherever nothing was said for a while: whoever reads a log sees that the work goes on, and which."""

from __future__ import annotations

import time
from collections.abc import Callable
from threading import Event, Lock, Thread
from types import TracebackType
from typing import Self

from groupwise.core.errors import FileError

MAX_SILENCE = 10.0
"""Seconds within which there is a line."""
LOOKS_EVERY = 0.5
"""Seconds between two looks at the clock."""

Clock = Callable[[], float]
"""Seconds since some moment that stays the same."""


class Heartbeat:
    """Says what is being done where nothing else was said for almost `MAX_SILENCE`, from a thread of its own."""

    def __init__(
        self, describe: Callable[[], str], say: Callable[[str], None], *, clock: Clock = time.monotonic
    ) -> None:
        self._describe, self._say, self._clock = describe, say, clock
        self._last_said = clock()
        self._lock, self._has_ended = Lock(), Event()
        self._thread = Thread(target=self._beat, name="groupwise-heartbeat", daemon=True)

    def note_line(self) -> None:
        """A line was said by somebody else: the silence begins anew."""
        self._last_said = self._clock()

    def look(self) -> None:
        """Say what is being done, if it was silent for long enough."""
        with self._lock:
            if self._clock() - self._last_said >= MAX_SILENCE - LOOKS_EVERY:
                self.note_line()
                self._say(self._describe())

    def __enter__(self) -> Self:
        self.note_line()
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._has_ended.set()
        self._thread.join()

    def _beat(self) -> None:
        while not self._has_ended.wait(LOOKS_EVERY):
            try:
                self.look()
            except (OSError, FileError):  # whoever prints next meets it too, where it is told
                return


def tell_progress(what: str, say: Callable[[str], None], *, clock: Clock = time.monotonic) -> Heartbeat:
    """A heartbeat that says what is being done, and for how long by now."""
    began = clock()
    return Heartbeat(lambda: f"{what}: {clock() - began:.0f} s so far", say, clock=clock)
