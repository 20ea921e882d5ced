"""Attempts that play in a thread of their own while the loop learns."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from threading import Thread
from time import perf_counter

import torch

from groupwise.core.journal.attempt_index import PastAttempts
from groupwise.core.journal.journal import Journal
from groupwise.rollout.stop_signal import StopSignal
from groupwise.training.attempts.rounds import PlayedRounds
from groupwise.training.run import Run

STOP_SECONDS = 60.0
"""How long is waited for a thread that was told to stop: engines and environments have time limits of their own."""
_log = logging.getLogger(__name__)


class PlayingThread:
    """Plays the rounds of one update; whatever ends them is raised where their result is asked for."""

    def __init__(self, number: int, play: Callable[[StopSignal], PlayedRounds]) -> None:
        self.number = number
        self._play, self._stop, self._future = play, StopSignal(), Future[PlayedRounds]()
        self._num_threads = torch.get_num_threads()
        self._thread = Thread(target=self._run, name=f"attempts of update {number}", daemon=True)
        self._thread.start()

    def has_ended(self) -> bool:
        """Whether there is a result, or an error in its place."""
        return self._future.done()

    def wait(self) -> PlayedRounds:
        """The rounds, once they are played."""
        return self._future.result()

    def stop(self) -> None:
        """End the attempts that play, and wait until they have."""
        self._stop.give()
        self._thread.join(STOP_SECONDS)
        if self._thread.is_alive():
            _log.warning(
                "the attempts of update %d still play %g seconds after they were told to stop; they end with the "
                "process",
                self.number,
                STOP_SECONDS,
            )

    def _run(self) -> None:
        # What torch computes depends on how many threads share the work, and a new thread has its own idea of that.
        torch.set_num_threads(self._num_threads)
        begin = perf_counter()
        try:
            rounds = self._play(self._stop)
        except BaseException as error:  # the loop's to deal with, whatever it is
            self._future.set_exception(error)
        else:
            rounds.played_in = perf_counter() - begin
            self._future.set_result(rounds)


@contextmanager
def open_past_attempts(run: Run) -> Iterator[PastAttempts]:
    """Open the past attempts for a thread: SQLite lets no other use the run's own connection."""
    with Journal(run.paths.journal, read_only=True) as journal:
        yield journal.past_attempts
