"""A signal that attempts are to stop playing, given by one thread and heard by another."""

from __future__ import annotations

from concurrent.futures import Future


class PlayStopped(Exception):
    """Attempts were told to stop before they had ended."""


class StopSignal:
    """Given once; whoever plays checks it between steps, and whoever waits for answers waits for it too."""

    def __init__(self) -> None:
        self.given: Future[None] = Future()
        """Done once the signal is given, so that it can be waited for among the futures of an engine."""

    def give(self) -> None:
        """Tell whoever plays to stop; once is enough."""
        if not self.given.done():
            self.given.set_result(None)

    def check(self) -> None:
        """Raise `PlayStopped` where the signal was given."""
        if self.given.done():
            raise PlayStopped
