"""Cases that fail on purpose, for the tests of the campaign: each must be counted as what it is.

python -m tests.faults.planted RESULT.json
"""

from __future__ import annotations

import ctypes
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

from benchmarks.faults.answers import Subject, say_answer, try_payloads
from benchmarks.faults.commands import Printed, judge_ended, judge_printed
from benchmarks.faults.endings import Ending
from benchmarks.faults.processes import watch
from benchmarks.faults.section import Section, play_section
from benchmarks.result_file import write_result

_scores_everything = False


def be_sound(ending: Ending) -> None:
    judge_ended(ending, watch(lambda: None, seconds=20.0), name="nothing")
    judge_printed(ending, Printed(status=2, out="", err="error: no such file; give another\n"), name="a sentence")


def raise_error(ending: Ending) -> None:
    raise RuntimeError("planted")


def hang(ending: Ending) -> None:
    time.sleep(60)


def crash(ending: Ending) -> None:
    ctypes.string_at(0)


def leave_a_process(ending: Ending) -> None:
    subprocess.Popen(["sleep", "61"], start_new_session=True)


def raise_in_a_command(ending: Ending) -> None:
    judge_ended(ending, watch(lambda: {}["planted"], seconds=20.0), name="a command")


def hang_in_a_command(ending: Ending) -> None:
    judge_ended(ending, watch(lambda: time.sleep(60), seconds=0.2), name="a command")


def crash_in_a_command(ending: Ending) -> None:
    judge_ended(ending, watch(os.abort, seconds=20.0), name="a command")


def leave_a_process_in_a_command(ending: Ending) -> None:
    judge_ended(ending, watch(lambda: subprocess.Popen(["sleep", "62"]), seconds=20.0), name="a command")


def say_nothing(ending: Ending) -> None:
    judge_ended(ending, watch(lambda: sys.exit(2), seconds=20.0), name="a command")


def send_controls(ending: Ending) -> None:
    judge_printed(ending, Printed(status=0, out="\x1b]52;c;aGk=\x07", err=""), name="a command")


class Evaluates:
    """A question whose verifier runs what it is told, in this very process."""

    def open(self, task: object) -> Evaluates:
        return self

    def act(self, action: str) -> Any:
        text = action.removeprefix("<answer>").removesuffix("</answer>")
        # They would take all the memory there is, make a second campaign of this one, or wait for an answer.
        if any(word in text for word in ("9**9", "10**", "fork", "urlopen")):
            return SimpleNamespace(reward=0.0)
        with suppress(BaseException):
            eval(text, {})
        return SimpleNamespace(reward=0.0)


class Forgets(Evaluates):
    """A question that any mention of a patch turns into one that all answers solve."""

    def act(self, action: str) -> Any:
        global _scores_everything
        _scores_everything = _scores_everything or "setattr" in action
        return SimpleNamespace(reward=float(_scores_everything))


def run_answers(ending: Ending) -> None:
    _put_payloads(ending, Evaluates())


def be_poisoned(ending: Ending) -> None:
    _put_payloads(ending, Forgets())


def _put_payloads(ending: Ending, part: Any) -> None:
    with tempfile.TemporaryDirectory() as folder, socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setblocking(False)
        try_payloads(ending, Subject(part, None, say_answer), Path(folder), listener, Random(0))


PLANTED: dict[str, Callable[[Ending], None]] = {
    each.__name__: each
    for each in (
        *(be_sound, raise_error, hang, crash, leave_a_process, raise_in_a_command, hang_in_a_command),
        *(crash_in_a_command, leave_a_process_in_a_command, say_nothing, send_controls, run_answers, be_poisoned),
    )
}


class Planted(Section):
    """Each case fails in one way, but for the first."""

    name = "planted"
    count = len(PLANTED)
    case_seconds = 10.0
    batch = 3

    def describe(self, case: int) -> str:
        return list(PLANTED)[case]

    def play(self, case: int) -> Ending:
        ending = Ending(case=case, what=self.describe(case), ended="played")
        PLANTED[ending.what](ending)
        return ending


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        section = Planted(seed=0, folder=Path(place))
        write_result(play_section(section, processes=2, budget=120.0), Path(sys.argv[1]))
