"""Recorded text is shown on a terminal, never sent to it: no command lets a control or direction character through."""

from __future__ import annotations

import io
import json
import logging
import os
import re
import sys
import termios
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from html.parser import HTMLParser
from pathlib import Path

import pytest

from groupwise.cli.live import show_live
from groupwise.cli.main import main
from groupwise.cli.screen import SafeConsole, prepare_streams, show_traceback
from groupwise.data.records import StopReason, Task, Trajectory
from groupwise.store.journal import Update
from tests.security.hostile import CODE, FOLDER, SENT, hostile, write_hostile_rollouts, write_hostile_run

STYLE = re.compile(r"\x1b\[[0-9;]*m")
"""What rich sends to colour."""
MOVES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\r")
"""What rich sends to draw a view again in its place."""

READING = {
    "inspect": ("inspect", "RUN"),
    "inspect an update": ("inspect", "RUN", "--update", "2"),
    "inspect a rollout": ("inspect", "RUN", "--update", "2", "--task", "task"),
    "inspect two runs": ("inspect", "--diff", "RUN", "OTHER"),
    "inspect as JSON": ("inspect", "RUN", "--update", "2", "--task", "task", "--json"),
    "inspect an unknown task": ("inspect", "RUN", "--update", "2", "--task", "nothing"),
    "audit": ("audit", "FILE"),
    "audit a run": ("audit", "RUN"),
    "audit as JSON": ("audit", "FILE", "--json"),
    "explain": ("explain", "FILE", "--rollout", hostile("attempt1").replace("\0", ""), "--step", "0"),
    "explain an unknown rollout": ("explain", "FILE", "--rollout", "nobody", "--step", "0"),
    "check rollouts": ("check", "rollouts", "FILE"),
    "tasks": ("tasks", "RUN"),
    "report": ("report", "RUN"),
    "an unknown method": ("methods", "--show", hostile("method").replace("\0", "")),
    "train": ("train", "config.toml", "--out", "new", "--set", f"env.kind={hostile('kind')}".replace("\0", "")),
    "evaluate": ("evaluate", "RUN"),
    "a wrong option": ("inspect", f"--{hostile('option')}".replace("\0", "")),
    "a wrong command": (hostile("command").replace("\0", ""),),
    "a folder that is not there": ("inspect", hostile("folder").replace("\0", "")),
}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with two hostile runs and a hostile rollouts file."""
    folder = tmp_path_factory.mktemp("received")
    write_hostile_run(folder / FOLDER)
    write_hostile_run(folder / "other", seed=1)
    write_hostile_rollouts(folder / "rollouts\x1b[2J.jsonl")
    (folder / "config.toml").write_bytes((folder / FOLDER / "config.toml").read_bytes())
    return folder


@pytest.fixture(params=["pipe", "terminal"])
def capture(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], None]], str]:
    """Calls something and gives back all that it wrote, to a pipe or to a terminal."""
    monkeypatch.setenv("TERM", "xterm-256color")
    for name in ("NO_COLOR", "COLUMNS"):
        monkeypatch.delenv(name, raising=False)

    def call(what: Callable[[], None]) -> str:
        with _capture(monkeypatch, terminal=request.param == "terminal") as written:
            with suppress(SystemExit):
                what()
            sys.stdout.flush()
            sys.stderr.flush()
        return "".join(written)

    return call


@contextmanager
def _capture(monkeypatch: pytest.MonkeyPatch, *, terminal: bool) -> Iterator[list[str]]:
    """What is written to standard output and error meanwhile, both of which are one pipe or pseudo-terminal."""
    reader, writer = os.openpty() if terminal else os.pipe()
    if terminal:  # as it is written: a terminal would make two characters of each line's end
        mode = termios.tcgetattr(writer)
        mode[1] &= ~termios.OPOST
        termios.tcsetattr(writer, termios.TCSANOW, mode)
    content = bytearray()

    def read() -> None:
        with suppress(OSError):  # a terminal whose other end is closed
            while piece := os.read(reader, 65536):
                content.extend(piece)

    thread = threading.Thread(target=read)
    thread.start()
    written: list[str] = []
    with open(writer, "w", encoding="utf-8", newline="") as stream:
        monkeypatch.setattr(sys, "stdout", stream)
        monkeypatch.setattr(sys, "stderr", stream)
        try:
            yield written
        finally:
            monkeypatch.undo()
    thread.join()
    os.close(reader)
    written.append(content.decode("utf-8"))


@pytest.mark.parametrize("case", READING)
def test_no_command_sends_what_was_recorded(
    case: str, place: Path, monkeypatch: pytest.MonkeyPatch, capture: Callable[[Callable[[], None]], str]
) -> None:
    names = {"RUN": FOLDER, "OTHER": "other", "FILE": "rollouts\x1b[2J.jsonl"}
    arguments = [names.get(argument, argument) for argument in READING[case]]
    monkeypatch.chdir(place)
    monkeypatch.setattr(sys, "argv", ["groupwise", *arguments])
    text = STYLE.sub("", capture(main))
    assert [character for character in SENT if character in text] == []
    assert "Traceback" not in text
    assert "\\x1b]" in text or "\\u001b]" in text or "\\x1b[2J" in text, text


def test_a_terminal_still_has_its_colours(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.chdir(place)
    monkeypatch.setattr(sys, "argv", ["groupwise", "inspect", FOLDER, "--update", "2", "--task", "task"])
    with _capture(monkeypatch, terminal=True) as written, pytest.raises(SystemExit):
        main()
    assert len(STYLE.findall(written[0])) > 20


def test_the_live_view_shows_faults_and_sends_none(capture: Callable[[Callable[[], None]], str]) -> None:
    fault = Trajectory(id="t/0", task=Task(id="t"), rollout=0, steps=(), stop=StopReason.ERROR, error=hostile("error"))
    update = Update(number=1, version=1, metrics={"seconds/learn": 1.0}, faults=[fault])

    def watch() -> None:
        with show_live(hostile("title"), 3, plain=False) as screen:
            screen.on_update(update)
            screen.on_stage(hostile("stage"), 2)

    text = MOVES.sub("", capture(watch))
    assert [character for character in SENT if character in text] == []
    assert "\\x1b]52" in text


def test_warnings_logs_and_tracebacks_are_shown_too(capture: Callable[[Callable[[], None]], str]) -> None:
    def speak() -> None:
        prepare_streams()
        warnings.warn(hostile("warning"), stacklevel=1)
        handler = logging.StreamHandler(sys.stderr)
        logger = logging.getLogger("somebody.else")
        logger.addHandler(handler)
        logger.error("failed: %s", hostile("log"))
        logger.removeHandler(handler)
        try:
            raise ValueError(hostile("raised"))
        except ValueError as error:
            show_traceback(type(error), error, error.__traceback__)

    with warnings.catch_warnings():
        warnings.simplefilter("always")
        text = STYLE.sub("", capture(speak))
    assert [character for character in SENT if character in text] == []
    assert all(f"{name}\\x1b]52" in text for name in ("warning", "log", "raised"))


def test_a_table_is_as_wide_as_what_it_shows() -> None:
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    table.add_column("a")
    table.add_column("b")
    table.add_row("\x1b[2J", "x")
    table.add_row("y", "z")
    stream = io.StringIO()
    SafeConsole(file=stream, width=40).print(table)
    assert [line.rstrip() for line in stream.getvalue().splitlines()] == ["a        b", "\\x1b[2J  x", "y        z"]


def test_half_a_character_of_a_recording_can_be_printed_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    from groupwise.cli.screen import print_json

    print_json({"action": CODE})
    out = capsys.readouterr().out
    assert out.isascii()
    assert json.loads(out) == {"action": CODE}


class _Page(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [name for name, _ in attrs]


def test_nothing_recorded_becomes_a_tag_an_attribute_or_a_mark_of_direction_on_the_page(tmp_path: Path) -> None:
    from groupwise.report.page import render_page
    from groupwise.training.run_reader import RunFolder

    with RunFolder(write_hostile_run(tmp_path / "run")) as run:
        plain = render_page(run, method="m")
    attack = "</script><script>alert(1)</script><img src=x onerror=alert(1)>\" onload='x"
    with RunFolder(write_hostile_run(tmp_path / "other", note=attack)) as run:
        page = render_page(run, method=attack, note=attack)
    assert [character for character in SENT if character in plain] == []
    assert "\\x1b]52" in plain
    parsed = _Page()
    parsed.feed(page)
    assert not {"script", "img", "iframe", "object", "a[href]"} & set(parsed.tags)
    assert not [name for name in parsed.attributes if name.startswith("on")]
    assert "Content-Security-Policy" in page
    assert "default-src &#x27;none&#x27;" in page
