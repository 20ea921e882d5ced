"""Lag "free": attempts of several updates play while others are learnt, and go on while weights are handed over."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import replace

from groupwise.rollout.player import Player
from groupwise.training.attempts.collect import UpdateAttempts, prepare_update
from groupwise.training.attempts.playing_thread import PlayingThread, stop_playing
from groupwise.training.attempts.stepped import PlayedNow
from groupwise.training.metrics.speed import Stopwatch
from groupwise.training.open_run import open_run_host
from groupwise.training.run import Run


class PlayedFreely(PlayedNow):
    """Plays the attempts of the next `max_age` updates, each update's in a thread of its own, whatever is learnt.

    Staleness is bounded by when attempts are asked for: those of update k once the learner has reached version
    k - 1 - max_age, so that no token is older than `max_age` versions when it is learnt from. They stay together and
    are trained in the order in which they were asked for, and none is discarded: the mix of tasks and of lengths that
    is trained is the mix that was asked for, however long a task takes.

    Which weights sample what depends on the clock, so that a run does not repeat itself. What is ready is written down
    with the update that is learnt; what still plays then is played again, at the same tasks, by a run that resumes.
    """

    def __init__(self, run: Run, ready: Mapping[int, UpdateAttempts]) -> None:
        super().__init__(run, ready)
        self._playing: dict[int, PlayingThread] = {}
        self._idle: list[Player] = []
        """Players that nobody plays with, each with a host and a prompter of its own."""

    def take(self, number: int, clock: Stopwatch) -> UpdateAttempts:
        """The attempts of an update, once they are played; those of later ones that may begin do."""
        self._ask_until(min(number + self._run.config.rollout.max_age, self._run.config.training.updates), number)
        if number in self._playing:
            clock.begin_stage("wait")
            self._prepare(self._playing[number])
        return super().take(number, clock)

    def finish_ahead(self, number: int, clock: Stopwatch) -> Mapping[int, UpdateAttempts]:
        """Prepare the attempts that are played by now; nobody is waited for."""
        clock.begin_stage("prepare")
        for playing in [playing for playing in self._playing.values() if playing.has_ended()]:
            self._prepare(playing)
        return dict(self._ready)

    def close(self) -> None:
        """End the attempts that play, and what they play in."""
        with ExitStack() as closing:  # whatever of it fails, the rest is ended too
            for player in (*self._idle, *(playing.player for playing in self._playing.values())):
                closing.callback(player.host.shutdown)
            stop_playing(self._playing.values())

    def _ask_until(self, last: int, first: int) -> None:
        """Begin to play the attempts of the updates up to one that nobody asked for yet."""
        for number in range(first, last + 1):
            if number not in self._ready and number not in self._playing:
                player = self._idle.pop() if self._idle else self._open_player()
                self._playing[number] = PlayingThread(self._run, number, player)

    def _prepare(self, playing: PlayingThread) -> None:
        """Wait until an update's attempts are played, and make of them what is learnt from."""
        rounds = playing.wait()
        del self._playing[playing.number]
        self._idle.append(playing.player)
        self._ready[playing.number] = prepare_update(self._run, rounds)

    def _open_player(self) -> Player:
        run = self._run
        return replace(run.player, host=open_run_host(run.config), prompter=run.prompter.copy())
