"""Runs a command that ends together with whoever started it: `python supervisor.py COMMAND ...`.

The standard input is a pipe that nobody writes to. Its end says that the parent is gone, however it went, and then the
whole group of processes is killed: a server that has started others takes them along. There are two of them, one behind
the other: some parents kill their children on their way out, and only those, and then the second still sees the pipe's
end. A script of the standard library alone, which imports nothing of ours, so that it starts at once under any Python.
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
    """Run the command that is given, and end with its status."""
    second = os.fork()
    if second:
        _stand_before(second)
    command = subprocess.Popen(sys.argv[1:], stdin=subprocess.DEVNULL)

    def pass_on(number: int, frame: Any) -> None:
        command.terminate()

    signal.signal(signal.SIGTERM, pass_on)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    status = command.wait()
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    os.killpg(0, signal.SIGTERM)  # whatever the command has left behind
    os._exit(status if status >= 0 else 128 - status)


def _stand_before(second: int) -> None:
    """Be the one whom the parent knows: pass signals on, and end with the status of the second."""

    def pass_on(number: int, frame: Any) -> None:
        with suppress(ProcessLookupError):  # it tells its whole group to end, us too, before it does
            os.kill(second, signal.SIGTERM)

    signal.signal(signal.SIGTERM, pass_on)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    status = os.waitstatus_to_exitcode(os.waitpid(second, 0)[1])
    os._exit(status if status >= 0 else 128 - status)


def _end_with_parent() -> None:
    """Wait for the end of the pipe, and kill this group of processes."""
    while os.read(0, 1024):
        pass
    os.killpg(0, signal.SIGKILL)


if __name__ == "__main__":
    main()
