"""Lag 1: the attempts of the next update play while this one is learnt, with exactly the weights of the one before."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial

from groupwise.rollout.stop_signal import StopSignal
from groupwise.training.attempts.collect import UpdateAttempts, prepare_update
from groupwise.training.attempts.playing_thread import PlayingThread, open_past_attempts
from groupwise.training.attempts.rounds import PlayedRounds, Playground, play_rounds
from groupwise.training.attempts.source import PlayedNow
from groupwise.training.metrics.speed import Stopwatch
from groupwise.training.run import Run


class PlayedOneAhead(PlayedNow):
    """Plays the attempts of update n + 1 while n is learnt, with version n - 1 of the weights.

    The engine holds that version until both are done, so that which weights sample what does not depend on the clock.
    Plans, curricula and stateful parts are as they were after update n - 1: n is told to them afterwards. The first
    update, and the first after a stop that left nothing behind, are played before they are learnt; the last one plays
    nothing ahead.
    """

    def __init__(self, run: Run, ready: Mapping[int, UpdateAttempts]) -> None:
        super().__init__(run, ready)
        self._playing: PlayingThread | None = None

    def take(self, number: int) -> UpdateAttempts:
        """The attempts that were played ahead; those of the next update begin to play."""
        attempts = super().take(number)
        if number < self._run.config.training.updates and number + 1 not in self._ready:
            self._playing = PlayingThread(number + 1, partial(_play_ahead, self._run, number + 1))
        return attempts

    def finish_ahead(self, number: int, clock: Stopwatch) -> Mapping[int, UpdateAttempts]:
        """Wait until the next update's attempts are played, and prepare them while the engine has their weights."""
        if self._playing is None:
            return dict(self._ready)
        clock.begin_stage("wait")
        rounds = self._playing.wait()
        self._playing = None
        clock.begin_stage("prepare")
        self._ready[rounds.number] = prepare_update(self._run, rounds)
        return dict(self._ready)

    def close(self) -> None:
        """End the attempts that play."""
        if self._playing is not None:
            self._playing.stop()


def _play_ahead(run: Run, number: int, stop: StopSignal) -> PlayedRounds:
    own = Playground.of(run)
    playground = replace(
        own, player=replace(own.player, stop=stop), open_past_attempts=partial(open_past_attempts, run)
    )
    return play_rounds(run, number, playground)
