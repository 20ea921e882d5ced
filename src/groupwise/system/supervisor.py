"""Runs a command that ends together with its parent: `python supervisor.py COMMAND ...`.

The standard input is a pipe that is never written to. When it ends, the parent has ended, and the whole process group
is killed, also processes that the command started. There are two supervisors, one the child of the other: a parent may
kill its direct children when it exits, and then the second one still sees the end of the pipe. The script uses only the
standard library, so that it starts at once under any Python.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from contextlib import suppress
from typing import Any


def main() -> None:
    second = os.fork()
    if second:
        _wait_for(second)
    command = subprocess.Popen(sys.argv[1:], stdin=subprocess.DEVNULL)

    def pass_on(number: int, frame: Any) -> None:
        command.terminate()

    signal.signal(signal.SIGTERM, pass_on)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    status = command.wait()
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    os.killpg(0, signal.SIGTERM)  # processes that the command left behind
    os._exit(status if status >= 0 else 128 - status)


def _wait_for(second: int) -> None:
    """The first supervisor: pass signals on to the second, and exit with its status."""

    def pass_on(number: int, frame: Any) -> None:
        with suppress(ProcessLookupError):  # the second ends its whole group, this process too, before it exits
            os.kill(second, signal.SIGTERM)

    signal.signal(signal.SIGTERM, pass_on)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    status = os.waitstatus_to_exitcode(os.waitpid(second, 0)[1])
    os._exit(status if status >= 0 else 128 - status)


def _end_with_parent() -> None:
    """Wait for the end of the pipe, then kill this process group."""
    while os.read(0, 1024):
        pass
    os.killpg(0, signal.SIGKILL)


if __name__ == "__main__":
    main()
