"""A command with a guardian beside it: it ends when it is asked to, and when whoever started it is gone."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress

from groupwise.core.started_rank import drop_torchrun_variables
from groupwise.launch import guardian

STOP_SECONDS = 15.0
"""How long a command may take to end by itself."""


class GuardedProcess:
    """The processes of one command: a guardian, and what it runs."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._owner = 0

    @property
    def pid(self) -> int:
        """The guardian, and the group of processes that it leads; 0 before the start."""
        return 0 if self._process is None else self._process.pid

    def is_alive(self) -> bool:
        """Whether the guardian runs; where it has ended it is left to be waited for, so that its number stays ours."""
        if self._process is None or self._process.returncode is not None:
            return False
        if not hasattr(os, "waitid"):  # macOS before Python 3.13
            return self._process.poll() is None
        return os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None

    def wait(self, seconds: float) -> None:
        """Wait for its end, at most so long."""
        deadline = time.monotonic() + seconds
        while self.is_alive() and time.monotonic() < deadline:
            time.sleep(min(0.02, seconds))

    def start(self, arguments: Sequence[str], variables: Mapping[str, str], log: int) -> None:
        """Start a command, which writes to a log.

        Args:
            arguments: of the command.
            variables: what its environment has beside ours; of torchrun's only these.
            log: an open file.
        """
        self._owner = os.getpid()
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", guardian.__file__, *arguments],
            stdin=subprocess.PIPE,  # never written to: its end tells the guardian that we are gone
            stdout=log,
            stderr=subprocess.STDOUT,
            env={**drop_torchrun_variables(os.environ), **variables},
            start_new_session=True,  # Ctrl-C is for us: we end what we started in order
        )

    def end(self) -> int | None:
        """Ask it to end, then kill what is left; its status. Nothing happens in a process that was forked from ours."""
        process = self._process
        if process is None or process.returncode is not None or self._owner != os.getpid():
            return None if process is None else process.returncode
        if self.is_alive():
            process.terminate()
            self.wait(STOP_SECONDS)
        with suppress(ProcessLookupError, PermissionError):  # macOS has the latter for a group of zombies
            os.killpg(process.pid, signal.SIGKILL)
        status = process.wait()
        if process.stdin is not None:
            process.stdin.close()
        return status


def find_free_port() -> int:
    """A port of this machine that nobody listens at just now."""
    with socket.socket() as probe:
        probe.bind(("", 0))
        port: int = probe.getsockname()[1]
        return port
