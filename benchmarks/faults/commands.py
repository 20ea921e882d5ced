"""The `groupwise` command, called in this process or in a forked one, and what its endings may be."""

from __future__ import annotations

import io
import re
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass

from benchmarks.faults.endings import Ending
from benchmarks.faults.processes import Ended, watch

TRACEBACK = "Traceback (most recent call last)"
SENTENCE = re.compile(r"^error: \S", re.MULTILINE)
CONTROLS = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\u061c]")
"""Characters that steer a terminal, or turn the direction of what it shows."""


@dataclass(frozen=True, kw_only=True)
class Printed:
    """What a command that ran in this process printed."""

    status: int
    out: str
    err: str


def call_command(*words: str) -> Printed:
    """Run a command in this process, with streams that are as strict as a terminal's; 70 = an exception came out."""
    out, err = _stream("strict"), _stream("backslashreplace")
    with _arguments(words), redirect_stdout(out), redirect_stderr(err):
        status = _call()
    return Printed(status=status, out=_content(out), err=_content(err))


def watch_command(*words: str, seconds: float, memory: int | None = None) -> Ended:
    """Run a command in a process forked from this one, watched over."""

    def call() -> None:
        with _arguments(words):
            sys.exit(_call())

    return watch(call, seconds=seconds, memory=memory)


def judge_printed(ending: Ending, printed: Printed, *, name: str, allowed: tuple[int, ...] = (0, 2)) -> None:
    """Note whatever a command in this process may never do."""
    _judge(ending, printed.status, printed.err, name, allowed)
    if control := CONTROLS.search(printed.out + printed.err):
        ending.fail(
            "sent_controls", f"{name}: {control[0]!r} in {_around(printed.out + printed.err, control.start())!r}"
        )


def judge_ended(ending: Ending, ended: Ended, *, name: str, allowed: tuple[int, ...] = (0, 2)) -> None:
    """Note whatever a watched command may never do."""
    for leftover in ended.leftovers:
        ending.fail("leftover_processes", f"{name}: {leftover}")
    if ended.status is None:
        ending.fail("hangs", f"{name}: not at its end in time; it said: {ended.output}")
    elif ended.status < 0:
        ending.fail("crashes", f"{name}: ended by signal {-ended.status}: {ended.output}")
    else:
        _judge(ending, ended.status, ended.output, name, allowed)
        if control := CONTROLS.search(ended.output):
            ending.fail("sent_controls", f"{name}: {control[0]!r} in {_around(ended.output, control.start())!r}")


def _judge(ending: Ending, status: int, output: str, name: str, allowed: tuple[int, ...]) -> None:
    if TRACEBACK in output:
        ending.fail("tracebacks", f"{name}: {output}")
    elif status not in allowed:
        ending.fail("unexplained_endings", f"{name}: status {status}: {output}")
    elif status == 2 and len(SENTENCE.findall(output)) != 1:
        ending.fail("unexplained_endings", f"{name}: status 2 without exactly one sentence: {output}")


def _call() -> int:
    from groupwise.cli.main import main

    try:
        main()
    except SystemExit as stopped:
        return stopped.code if isinstance(stopped.code, int) else 0 if stopped.code is None else 1
    except BaseException:
        traceback.print_exc()
        return 70
    return 0


@contextmanager
def _arguments(words: tuple[str, ...]) -> Iterator[None]:
    before = sys.argv
    sys.argv = ["groupwise", *words]
    try:
        yield
    finally:
        sys.argv = before


def _stream(errors: str) -> io.TextIOWrapper:
    return io.TextIOWrapper(io.BytesIO(), "utf-8", errors, write_through=True)


def _content(stream: io.TextIOWrapper) -> str:
    assert isinstance(stream.buffer, io.BytesIO)
    return stream.buffer.getvalue().decode("utf-8", "backslashreplace")


def _around(text: str, place: int) -> str:
    return text[max(place - 40, 0) : place + 40]
