"""Threads that play ahead: a wait that takes long says so, and all are told to stop before any is waited for."""

from __future__ import annotations

import logging
import re
import threading
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

from groupwise.rollout.episodes import Player
from groupwise.training.collect import ahead as playing_thread
from groupwise.training.collect.ahead import PlayingThread, stop_playing
from groupwise.training.collect.collect import PlayedRounds
from groupwise.training.run import Run
from tests.unit.training.runs import small_run

SECONDS = 20.0
"""After which a test that waits for something has failed."""


def test_a_wait_that_takes_long_says_for_what_and_how_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said, may_end = list[str](), threading.Event()

    class Ending(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            said.append(record.getMessage())
            may_end.set()

    def play(run: Run, number: int, player: Player) -> PlayedRounds:
        assert may_end.wait(SECONDS)
        return PlayedRounds(number)

    monkeypatch.setattr(playing_thread, "play_rounds", play)
    monkeypatch.setattr(playing_thread, "REPORT_SECONDS", 0.01)
    handler, logger = Ending(), logging.getLogger(playing_thread.__name__)
    logger.addHandler(handler)
    try:
        with small_run(tmp_path) as run:
            assert PlayingThread(run, 4, run.player).wait().number == 4
    finally:
        logger.removeHandler(handler)
    assert re.fullmatch(
        r"waited \d+ seconds so far for the rollouts of update 4; if an environment hangs, set rollout\.workers, "
        r"which gives environments a time limit",
        said[0],
    )


def test_a_time_out_of_what_plays_is_no_longer_wait(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def play(run: Run, number: int, player: Player) -> PlayedRounds:
        raise TimeoutError("the roof took too long")

    monkeypatch.setattr(playing_thread, "play_rounds", play)
    with small_run(tmp_path) as run, pytest.raises(TimeoutError, match="the roof took too long"):
        PlayingThread(run, 4, run.player).wait()


def test_all_are_told_to_stop_before_any_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Each ends only once the other was told to."""
    signals: dict[int, Any] = {}
    are_there = threading.Barrier(3)

    def play(run: Run, number: int, player: Player) -> PlayedRounds:
        signals[number] = player.stop
        are_there.wait(SECONDS)
        signals[3 - number].given.result(SECONDS)
        return PlayedRounds(number)

    monkeypatch.setattr(playing_thread, "play_rounds", play)
    with small_run(tmp_path) as run:
        threads = [PlayingThread(run, number, run.player) for number in (1, 2)]
        are_there.wait(SECONDS)
        stop_playing(threads)
    assert all(thread.has_ended() for thread in threads)
    assert caplog.text == ""


def test_those_that_do_not_stop_share_one_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    now, waits = 100.0, list[float]()

    class Hanging:
        def __init__(self) -> None:
            self.stop = self

        def give(self) -> None:
            assert waits == []

        def join(self, seconds: float) -> None:
            nonlocal now
            waits.append(seconds)
            now += seconds

    monkeypatch.setattr(playing_thread, "perf_counter", lambda: now)
    threads: list[Any] = [Hanging(), Hanging(), Hanging()]
    stop_playing(threads)
    assert waits == [playing_thread.STOP_SECONDS, 0.0, 0.0]
