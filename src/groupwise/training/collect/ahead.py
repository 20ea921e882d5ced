"""Where an update's attempts come from: played when they are needed, or ahead, while the update before is learnt."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from concurrent.futures import Future, wait
from contextlib import ExitStack
from dataclasses import replace
from math import inf
from threading import Thread
from time import perf_counter

import torch

from groupwise.credit.filters import Staleness
from groupwise.rollout.episodes import Player, StopSignal
from groupwise.store.journal_file import report_damage
from groupwise.system.errors import TrainingError
from groupwise.training.collect.collect import PlayedRounds, UpdateAttempts, collect_update, play_rounds, prepare_update
from groupwise.training.collect.pending import read_pending
from groupwise.training.config.run_config import RunConfig, lacks_correction
from groupwise.training.observer import Stopwatch
from groupwise.training.open_run import open_run_host
from groupwise.training.run import Run
from groupwise.training.update_metrics import compute_age_metrics


def open_source(run: Run, done: int) -> PlayedNow:
    """Open the source of a run's attempts, for the updates after those that are done."""
    kinds: dict[int | str, type[PlayedNow]] = {0: PlayedNow, 1: OneStepOffPolicy, "free": PlayedFreely}
    return kinds[run.config.rollout.lag](run, read_ready(run, done))


# Attempts that were played ahead before a run stopped: read again, and refused where the settings would drop them.


def read_ready(run: Run, done: int) -> dict[int, UpdateAttempts]:
    """The attempts that were played ahead when update `done` was written, by the update that they are for."""
    with report_damage(run.paths.journal):
        return {number: read_pending(pending) for number, pending in run.journal.read_pending(done).items()}


def check_ready(run: Run, done: int) -> None:
    """Stop a run that goes on with another lag where that would drop what is ready, or train it uncorrected."""
    rollout, updates = run.config.rollout, run.config.training.updates
    ages = {
        number: compute_age_metrics(attempts.chosen, number - 1).get("rollout/max_age", 0.0)
        for number, attempts in read_ready(run, done).items()
        if number <= updates
    }
    oldest, max_age = max(ages.values(), default=0.0), _find_max_age(run.config)
    if oldest <= max_age:
        return
    advice = f"rollout.max_age = {oldest:g}, also in a filter on staleness that the run file has,"
    if not rollout.lag:  # what is the last update plays nothing ahead
        advice = f"rollout.lag = 1, rollout.max_age = {oldest:g} and training.updates = {max(ages)}"
    raise TrainingError(
        f"{run.folder}: attempts that are ready for the next updates were sampled by weights up to {oldest:g} versions "
        f"back, and with rollout.lag = {rollout.lag} and rollout.max_age = {rollout.max_age} none is trained that is "
        f"more than {max_age:g} back; resume with {advice} until there is a checkpoint of update {max(ages)}, "
        "then with these settings"
    )


def _find_max_age(config: RunConfig) -> float:
    """How old attempts may be that the settings train, with a correction where one is due."""
    bounds: list[float] = [part.max_age for part in config.algorithm.filters if isinstance(part, Staleness)]
    if config.rollout.lag:
        bounds.append(config.rollout.max_age)
    elif config.rollout.corrects_lag and lacks_correction(config.algorithm):
        bounds.append(0)
    return min(bounds, default=inf)


# Attempts that are played by a version of the weights which the clock has no say in: lag 0 and lag 1.


class PlayedNow:
    """Gives the loop the attempts of one update after the other; here they are played when they are asked for (lag 0).

    Sources differ in when attempts are played and by which version of the weights, not in what is asked for: every
    attempt that was asked for an update is handed out with that update. What was played ahead before the run stopped,
    with another lag, is handed out first.
    """

    def __init__(self, run: Run, ready: Mapping[int, UpdateAttempts] | None = None) -> None:
        self._run = run
        self._ready = dict(ready or {})

    def take(self, number: int, clock: Stopwatch) -> UpdateAttempts:
        """The attempts of an update, once they are there; attempts of later ones may begin to play."""
        return self._ready.pop(number) if number in self._ready else collect_update(self._run, number)

    def finish_ahead(self, number: int, clock: Stopwatch) -> Mapping[int, UpdateAttempts]:
        """What was played ahead, by update, once update `number` is learnt and before its weights are handed over.

        It is written down with that update, so that a run that is resumed after it need not play it again.
        """
        return dict(self._ready)

    def close(self) -> None:
        """End whatever still plays."""


class OneStepOffPolicy(PlayedNow):
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


# Lag "free": attempts of several updates play while others are learnt, and go on while weights are handed over.


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


# Attempts that play in a thread of their own while the loop learns.

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
            rounds = play_rounds(self._run, self.number, replace(self.player, stop=self._stop))
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
