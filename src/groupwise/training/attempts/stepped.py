"""Attempts that are played by a version of the weights which the clock has no say in: lag 0 and lag 1."""

from __future__ import annotations

from collections.abc import Mapping
from types import TracebackType
from typing import Self

from groupwise.training.attempts.collect import UpdateAttempts, collect_update, prepare_update
from groupwise.training.attempts.playing_thread import PlayingThread, stop_playing
from groupwise.training.metrics.speed import Stopwatch
from groupwise.training.run import Run


class PlayedNow:
    """Plays the attempts of an update when they are asked for, with the weights of the update before (lag 0).

    What was played ahead before the run stopped, with another lag, is handed out first.
    """

    def __init__(self, run: Run, ready: Mapping[int, UpdateAttempts] | None = None) -> None:
        self._run = run
        self._ready = dict(ready or {})

    def take(self, number: int, clock: Stopwatch) -> UpdateAttempts:
        """Play them, unless they are there."""
        return self._ready.pop(number) if number in self._ready else collect_update(self._run, number)

    def finish_ahead(self, number: int, clock: Stopwatch) -> Mapping[int, UpdateAttempts]:
        """Nothing is played ahead; what another lag left is kept until its turn."""
        return dict(self._ready)

    def close(self) -> None:
        """Nothing plays."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


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

    def take(self, number: int, clock: Stopwatch) -> UpdateAttempts:
        """The attempts that were played ahead; those of the next update begin to play."""
        attempts, following = super().take(number, clock), number + 1
        if following <= self._run.config.training.updates and following not in self._ready:
            self._playing = PlayingThread(self._run, following, self._run.player)
        return attempts

    def finish_ahead(self, number: int, clock: Stopwatch) -> Mapping[int, UpdateAttempts]:
        """Wait until the next update's attempts are played, and prepare them while the engine has their weights."""
        if self._playing is not None:
            clock.begin_stage("wait")
            rounds = self._playing.wait()
            self._playing = None
            clock.begin_stage("prepare")
            self._ready[rounds.number] = prepare_update(self._run, rounds)
        return dict(self._ready)

    def close(self) -> None:
        """End the attempts that play."""
        if self._playing is not None:
            stop_playing([self._playing])
