"""Attempts that play in a thread of their own while the loop learns."""

from __future__ import annotations

import logging
from collections.abc import Collection
from concurrent.futures import Future, wait
from dataclasses import replace
from threading import Thread
from time import perf_counter

import torch

from groupwise.rollout.player import Player
from groupwise.rollout.stop_signal import StopSignal
from groupwise.training.attempts.rounds import PlayedRounds, Playground, play_rounds
from groupwise.training.run import Run

STOP_SECONDS = 60.0
"""How long is waited for threads that were told to stop: engines and environments have time limits of their own."""
REPORT_SECONDS = 300.0
"""After how long a wait for attempts says that it still waits, each time."""
_log = logging.getLogger(__name__)


class PlayingThread:
    """Plays the rounds of one update; whatever ends them is raised where their result is asked for."""

    def __init__(self, run: Run, number: int, player: Player) -> None:
        self.number, self.player = number, player
        self._run, self._stop, self._future = run, StopSignal(), Future[PlayedRounds]()
        self._num_threads = torch.get_num_threads()
        self._thread = Thread(target=self._play, name=f"attempts of update {number}", daemon=True)
        self._thread.start()

    def has_ended(self) -> bool:
        """Whether there is a result, or an error in its place."""
        return self._future.done()

    def wait(self) -> PlayedRounds:
        """The rounds, once they are played; a wait that takes long says so every few minutes.

        It has no limit of its own. Engines and environments in workers have theirs, by the request and by the action,
        and an update may have any number of these; environments in this process have none, at lag 0 neither.
        """
        begin = perf_counter()
        while not wait([self._future], REPORT_SECONDS).done:
            _log.warning(
                "waited %.0f seconds so far for the attempts of update %d, which still play; where an environment "
                "hangs, rollout.workers gives environments processes and a time limit",
                perf_counter() - begin,
                self.number,
            )
        return self._future.result()

    def tell_to_stop(self) -> None:
        """End the attempts at their next step; nobody is waited for."""
        self._stop.give()

    def join(self, seconds: float) -> None:
        """Wait until the attempts that were told to stop have ended."""
        self._thread.join(max(seconds, 0.0))
        if self._thread.is_alive():
            _log.warning(
                "the attempts of update %d still play %g seconds after they were told to stop; they end with the "
                "process",
                self.number,
                STOP_SECONDS,
            )

    def _play(self) -> None:
        # What torch computes depends on how many threads share the work, and a new thread has its own idea of that.
        torch.set_num_threads(self._num_threads)
        begin = perf_counter()
        try:
            playground = Playground.of_thread(self._run, self.number, replace(self.player, stop=self._stop))
            rounds = play_rounds(self._run, self.number, playground)
        except BaseException as error:  # the loop's to deal with, whatever it is
            self._future.set_exception(error)
        else:
            rounds.played_in = perf_counter() - begin
            self._future.set_result(rounds)


def stop_playing(threads: Collection[PlayingThread]) -> None:
    """End the attempts of all threads, and wait until they have, within one limit for all together."""
    for thread in threads:
        thread.tell_to_stop()
    end = perf_counter() + STOP_SECONDS
    for thread in threads:
        thread.join(end - perf_counter())
