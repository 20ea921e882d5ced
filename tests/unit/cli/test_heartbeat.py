"""Without a terminal there is a line at least every ten seconds, from the opening of a run to its end."""

from __future__ import annotations

import io
import threading
from itertools import pairwise

import pytest
from rich.console import Console

from groupwise.cli import live as heartbeat
from groupwise.cli.live import MAX_SILENCE, Heartbeat, PlainLines, tell_progress
from groupwise.system.errors import FileError
from tests.unit.cli.updates import update


class FakeClock:
    """A clock that goes on when it is told to, and looks at the heart at every half second."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def pass_time(self, lines: PlainLines, seconds: float) -> None:
        for _ in range(round(seconds / 0.5)):
            self.now += 0.5
            lines.heartbeat.look()


class TimedFile(io.StringIO):
    """Remembers when each line was written."""

    def __init__(self, clock: FakeClock) -> None:
        super().__init__()
        self.times: list[float] = []
        self._clock = clock

    def write(self, text: str) -> int:
        self.times += [self._clock.now] * text.count("\n")
        return super().write(text)


def test_a_run_of_long_stages_is_never_silent_for_longer_than_ten_seconds() -> None:
    clock = FakeClock()
    file = TimedFile(clock)
    lines = PlainLines(Console(file=file, width=200, force_terminal=False), clock=clock)
    clock.pass_time(lines, 12)
    lines.on_stage("warm start", 0)
    clock.pass_time(lines, 25)
    lines.on_warm_start_epoch([2.0], 5)
    clock.pass_time(lines, 11)
    lines.on_warm_start([2.0, 1.0])
    lines.on_stage("evaluate", 0)
    clock.pass_time(lines, 9)
    lines.on_stage("rollout", 1)
    clock.pass_time(lines, 45)
    lines.on_update(update(1, 0.5))
    lines.on_stage("learn", 2)
    clock.pass_time(lines, 130)
    said = file.getvalue().splitlines()
    assert said[0] == "opening the run for 10 s (10 s in all)"
    assert said[1] == "warm start for 7 s (19 s in all)"
    assert "warm start for 36 s, epoch 1 of 5 done, loss 2.000 (48 s in all)" in said
    assert "update 1: rollout for 10 s (1 min 7 s in all)" in said
    assert said[-1].startswith("update 2: learn for 2 min ")
    times = [0.0, *file.times, clock.now]
    assert max(after - before for before, after in pairwise(times)) <= MAX_SILENCE


def test_where_lines_come_of_themselves_nothing_is_added() -> None:
    clock = FakeClock()
    file = TimedFile(clock)
    lines = PlainLines(Console(file=file, width=200, force_terminal=False), clock=clock)
    for number in range(1, 6):
        lines.on_stage("rollout", number)
        clock.pass_time(lines, 8)
        lines.on_update(update(number, 0.5))
    assert [line.split()[:2] for line in file.getvalue().splitlines()] == [["update", str(n)] for n in range(1, 6)]


def test_a_thread_looks_at_the_clock_and_ends_with_its_context(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heartbeat, "LOOKS_EVERY", 0.001)
    said, has_spoken, clock = list[str](), threading.Event(), FakeClock()

    def say(line: str) -> None:
        said.append(line)
        has_spoken.set()

    with tell_progress("playing", say, clock=clock):
        clock.now = 11.0
        assert has_spoken.wait(10)
    assert said == ["playing: 11 s so far"]
    assert "groupwise-heartbeat" not in {thread.name for thread in threading.enumerate()}


def test_a_stream_that_cannot_be_written_stops_the_heart_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heartbeat, "LOOKS_EVERY", 0.001)
    clock, has_tried = FakeClock(), threading.Event()

    def fail(line: str) -> None:
        has_tried.set()
        raise FileError("no space left")

    with Heartbeat(lambda: "busy", fail, clock=clock):
        clock.now = 11.0
        assert has_tried.wait(10)
