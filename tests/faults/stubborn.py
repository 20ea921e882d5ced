"""An environment that will not go away, for runs that are killed; workers import it by name."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time

from groupwise import Part, Task
from groupwise.envs import Observation, Outcome

MARK = "STUBBORN_MARK"
"""The environment variable by which everything that a test started is found, whoever its parent is."""


class Stubborn(Part, slot="env"):
    """Does what an action says, and does not come back."""

    max_steps: int = 5

    def task_set(self, split: str) -> tuple[Task, ...]:
        return (Task.create(env="stubborn", split=split),)

    def open(self, task: Task) -> StubbornEnvironment:
        return StubbornEnvironment()

    def vocabulary(self) -> tuple[str, ...]:
        return ("spin",)

    def instruction(self) -> str:
        return "Spin."


class StubbornEnvironment:
    def observe(self) -> Observation:
        return Observation(text="here")

    def act(self, action: str) -> Outcome:
        if "ignore" in action:
            for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
                signal.signal(number, signal.SIG_IGN)
        if "group" in action:
            subprocess.Popen(["sleep", "1000"], start_new_session=False)
        if "session" in action:
            subprocess.Popen(["sleep", "1000"], start_new_session=True)
        if "daemon" in action and os.fork() == 0:
            os.setsid()
            if os.fork() == 0:
                os.execvp("sleep", ["sleep", "1000"])
            os._exit(0)
        sys.stderr.write("acting\n")
        sys.stderr.flush()
        if "spin" in action:
            re.fullmatch(r"(a+)+b", "a" * 64)  # backtracks for ages in C and never lets go of the interpreter's lock
        time.sleep(1000)
        raise AssertionError
