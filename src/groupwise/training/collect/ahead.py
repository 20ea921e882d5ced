"""Where an update's rollouts come from: sampled when they are needed, or ahead, while the update before is learned."""

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
from groupwise.training.collect.collect import PlayedRounds, UpdateRollouts, collect_update, play_rounds, prepare_update
from groupwise.training.collect.pending import read_pending
from groupwise.training.config.run_config import lacks_correction
from groupwise.training.observer import Stopwatch
from groupwise.training.open_run import open_run_host
from groupwise.training.run import Run
from groupwise.training.update_metrics import compute_age_metrics


def open_source(run: Run, done: int) -> PlayedNow:
    """Open the source of a run's rollouts, for the updates after update `done`."""
    kinds: dict[int | str, type[PlayedNow]] = {0: PlayedNow, 1: OneStepOffPolicy, "free": PlayedFreely}
    return kinds[run.config.rollout.lag](run, read_ready(run, done))


def read_ready(run: Run, done: int) -> dict[int, UpdateRollouts]:
    """The rollouts that were sampled ahead when update `done` was written, by their update."""
    with report_damage(run.paths.journal):
        return {number: read_pending(pending) for number, pending in run.journal.read_pending(done).items()}


def check_ready(run: Run, done: int) -> None:
    """Stop a resumed run if its new lag would drop the rollouts that are ready, or train them without correction."""
    rollout, updates = run.config.rollout, run.config.training.updates
    ages = {
        number: compute_age_metrics(rollouts.chosen, number - 1).get("rollout/max_staleness", 0.0)
        for number, rollouts in read_ready(run, done).items()
        if number <= updates
    }
    oldest = max(ages.values(), default=0.0)
    # The highest staleness that the settings train, with a correction if one is needed.
    bounds: list[float] = [part.max_staleness for part in run.config.algorithm.filters if isinstance(part, Staleness)]
    if rollout.lag:
        bounds.append(rollout.max_staleness)
    elif rollout.corrects_lag and lacks_correction(run.config.algorithm):
        bounds.append(0)
    max_staleness = min(bounds, default=inf)
    if oldest <= max_staleness:
        return
    advice = f"rollout.max_staleness = {oldest:g}, also in a filter on staleness that the run file has,"
    if not rollout.lag:  # with that number of updates, nothing is sampled ahead
        advice = f"rollout.lag = 1, rollout.max_staleness = {oldest:g} and training.updates = {max(ages)}"
    raise TrainingError(
        f"{run.folder}: rollouts that are ready for the next updates are up to {oldest:g} policy versions old, but "
        f"rollout.lag = {rollout.lag} and rollout.max_staleness = {rollout.max_staleness} train none older than "
        f"{max_staleness:g} versions. Resume with {advice} until there is a checkpoint of update {max(ages)}, then "
        "with these settings"
    )


class PlayedNow:
    """Gives the loop the rollouts of each update; at lag 0 they are sampled when the loop asks for them.

    Other sources sample at other times and with other policy versions, but every requested rollout is trained with the
    update that it was requested for. Rollouts that were sampled ahead before a resume, at another lag, come first.
    """

    def __init__(self, run: Run, ready: Mapping[int, UpdateRollouts] | None = None) -> None:
        self._run = run
        self._ready = dict(ready or {})

    def take(self, number: int, clock: Stopwatch) -> UpdateRollouts:
        """Wait for the rollouts of an update; rollouts of later ones may begin."""
        return self._ready.pop(number) if number in self._ready else collect_update(self._run, number)

    def finish_ahead(self, number: int, clock: Stopwatch) -> Mapping[int, UpdateRollouts]:
        """The rollouts that were sampled ahead, by update, after update `number` is learned and before its weight sync.

        They are saved with update `number`, so a resumed run need not sample them again.
        """
        return dict(self._ready)

    def close(self) -> None:
        """End the rollouts that still run."""


class OneStepOffPolicy(PlayedNow):
    """Samples the rollouts of update n + 1 with policy version n - 1, while update n is learned.

    The engine keeps that version until both are done, so results do not depend on timing. Plans, curricula and stateful
    parts are as after update n - 1. The first update of a run, or of a resume without saved rollouts, is not sampled
    ahead.
    """

    def __init__(self, run: Run, ready: Mapping[int, UpdateRollouts]) -> None:
        super().__init__(run, ready)
        self._playing: PlayingThread | None = None

    def take(self, number: int, clock: Stopwatch) -> UpdateRollouts:
        rollouts, following = super().take(number, clock), number + 1
        if following <= self._run.config.training.updates and following not in self._ready:
            self._playing = PlayingThread(self._run, following, self._run.player)
        return rollouts

    def finish_ahead(self, number: int, clock: Stopwatch) -> Mapping[int, UpdateRollouts]:
        """Wait for the next update's rollouts, and prepare them while the engine still has their weights."""
        if self._playing is not None:
            clock.begin_stage("wait")
            rounds = self._playing.wait()
            self._playing = None
            clock.begin_stage("prepare")
            self._ready[rounds.number] = prepare_update(self._run, rounds)
        return dict(self._ready)

    def close(self) -> None:
        if self._playing is not None:
            stop_playing([self._playing])


class PlayedFreely(PlayedNow):
    """Samples the rollouts of the next `max_staleness` updates, one thread per update, also during weight syncs (lag
    "free").

    The rollouts of update k begin when the learner reaches version k - 1 - max_staleness. No token is therefore older
    than `max_staleness` versions when it is trained. An update's rollouts are trained together, in the requested order,
    and none is discarded: slow tasks are not underrepresented.

    Results depend on timing, so a run cannot be reproduced. Finished rollouts are saved with each update; a resumed run
    samples the unfinished ones again, at the same tasks.
    """

    def __init__(self, run: Run, ready: Mapping[int, UpdateRollouts]) -> None:
        super().__init__(run, ready)
        self._playing: dict[int, PlayingThread] = {}
        self._idle: list[Player] = []
        """Players that are not in use, each with a host and a prompter of its own."""

    def take(self, number: int, clock: Stopwatch) -> UpdateRollouts:
        run = self._run
        last = min(number + run.config.rollout.max_staleness, run.config.training.updates)
        for following in range(number, last + 1):
            if following not in self._ready and following not in self._playing:
                if not self._idle:
                    host, prompter = open_run_host(run.config), run.prompter.copy()
                    self._idle.append(replace(run.player, host=host, prompter=prompter))
                self._playing[following] = PlayingThread(run, following, self._idle.pop())
        if number in self._playing:
            clock.begin_stage("wait")
            self._prepare(self._playing[number])
        return super().take(number, clock)

    def finish_ahead(self, number: int, clock: Stopwatch) -> Mapping[int, UpdateRollouts]:
        """Prepare the rollouts that are finished by now, without waiting."""
        clock.begin_stage("prepare")
        for playing in [playing for playing in self._playing.values() if playing.has_ended()]:
            self._prepare(playing)
        return dict(self._ready)

    def close(self) -> None:
        """End the rollouts and their environments."""
        with ExitStack() as closing:  # if one fails, the others are still ended
            for player in (*self._idle, *(playing.player for playing in self._playing.values())):
                closing.callback(player.host.shutdown)
            stop_playing(self._playing.values())

    def _prepare(self, playing: PlayingThread) -> None:
        """Wait for an update's rollouts, and prepare them for learning."""
        rounds = playing.wait()
        del self._playing[playing.number]
        self._idle.append(playing.player)
        self._ready[playing.number] = prepare_update(self._run, rounds)


STOP_SECONDS = 60.0
"""Seconds to wait for threads that were stopped; engines and environments have time limits of their own."""
REPORT_SECONDS = 300.0
"""Seconds between log lines while the loop waits for rollouts."""
_log = logging.getLogger(__name__)


class PlayingThread:
    """Samples one update's rollouts in a thread; `wait` raises its error."""

    def __init__(self, run: Run, number: int, player: Player) -> None:
        self.number, self.player = number, player
        self._run, self.stop, self._future = run, StopSignal(), Future[PlayedRounds]()
        self._num_threads = torch.get_num_threads()
        self._thread = Thread(target=self._play, name=f"rollouts of update {number}", daemon=True)
        self._thread.start()

    def has_ended(self) -> bool:
        """Whether there is a result, or an error in its place."""
        return self._future.done()

    def wait(self) -> PlayedRounds:
        """Wait for the rounds, and log a line every few minutes.

        There is no time limit here. Engines have one per request and environments in workers one per action;
        environments in this process have none.
        """
        begin = perf_counter()
        while not wait([self._future], REPORT_SECONDS).done:
            _log.warning(
                "waited %.0f seconds so far for the rollouts of update %d; if an environment hangs, set "
                "rollout.workers, which gives environments a time limit",
                perf_counter() - begin,
                self.number,
            )
        return self._future.result()

    def join(self, seconds: float) -> None:
        """Wait until the stopped rollouts have ended."""
        self._thread.join(max(seconds, 0.0))
        if self._thread.is_alive():
            _log.warning(
                "the rollouts of update %d still run %g seconds after they were stopped; they end with the process",
                self.number,
                STOP_SECONDS,
            )

    def _play(self) -> None:
        # Results depend on torch's number of threads, and a new Python thread has its own default.
        torch.set_num_threads(self._num_threads)
        begin = perf_counter()
        try:
            rounds = play_rounds(self._run, self.number, replace(self.player, stop=self.stop))
        except BaseException as error:  # the loop raises it
            self._future.set_exception(error)
        else:
            rounds.played_in = perf_counter() - begin
            self._future.set_result(rounds)


def stop_playing(threads: Collection[PlayingThread]) -> None:
    """End the rollouts of all threads, with one time limit for all together."""
    for thread in threads:
        thread.stop.give()
    end = perf_counter() + STOP_SECONDS
    for thread in threads:
        thread.join(end - perf_counter())
