"""The parent's end of a worker: its process, the pipe to it, and the calls it has not answered yet."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from multiprocessing import Pipe
from time import monotonic
from typing import Generic, TypeVar

from groupwise.rollout.worker_loop import Call

START = "import sys; sys.path[:] = {path!r}; from groupwise.rollout.worker_loop import serve; serve({descriptor})"
LAST_WORDS_SECONDS = 1.0
"""How long a process whose pipe has closed may take to end by itself, so that its exit code can be told."""

Seat = TypeVar("Seat")


class Worker(Generic[Seat]):
    """A worker process; calls are sent once it is ready and answered in order, one `Seat` a call.

    The process is a fresh interpreter. Forking would copy torch with its locks and threads; multiprocessing's spawn
    would run the parent's main module again, and with it whatever that imports.
    """

    def __init__(self, config: bytes, *, timeout: float, start_timeout: float) -> None:
        self.connection, theirs = Pipe()
        self.waiting: deque[Seat] = deque()
        """Who waits for an answer, in order; the first is being worked on."""
        self.is_ready = False
        self.failure: str | None = None
        """Why it could not start."""
        self._timeout = timeout
        self._deadline = monotonic() + start_timeout
        self._unsent: list[tuple[int, Call]] = []
        code = START.format(path=[str(entry) for entry in sys.path], descriptor=theirs.fileno())
        with theirs:
            self._popen = subprocess.Popen(
                [sys.executable, "-c", code],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=2,  # what environments print must not mix with what a command prints
                # One order of sets in all workers, so that a replay meets the same one.
                env={"PYTHONHASHSEED": "0"} | os.environ,
                start_new_session=True,  # a group of its own: ended whole, and not reached by ctrl-c
            )
        with suppress(OSError):  # a process that died already is noticed when it is read from
            self.connection.send_bytes(config)

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._popen.pid

    @property
    def is_alive(self) -> bool:
        """Whether the process runs."""
        return self._popen.poll() is None

    @property
    def is_late(self) -> bool:
        """Whether the answer that is due has not come in time."""
        return self.seconds_left == 0 and not self.connection.poll()

    @property
    def seconds_left(self) -> float:
        """Until the next answer is late."""
        return max(self._deadline - monotonic(), 0.0)

    def ask(self, calls: Sequence[tuple[Seat, int, Call]]) -> bool:
        """Send calls (who waits for the answer, the environment's key, the call); False if the worker is gone."""
        self.waiting += [seat for seat, _, call in calls if call is not None]
        self._unsent += [(key, call) for _, key, call in calls]
        return not self.is_ready or self._send()

    def begin(self) -> None:
        """It is ready: send what has been waiting for that."""
        self.is_ready = True
        if self._unsent:
            self._send()

    def hear(self) -> bytes:
        """The next answer, pickled; EOFError or OSError if the worker is gone."""
        answer = self.connection.recv_bytes()
        self._deadline = monotonic() + self._timeout
        return answer

    def last_words(self) -> str:
        """How the process ended."""
        with suppress(subprocess.TimeoutExpired):
            self._popen.wait(LAST_WORDS_SECONDS)
        code = self._popen.poll()
        if code is None:
            return "the worker closed its pipe"
        return f"the worker was killed by {_signal_name(-code)}" if code < 0 else f"the worker ended with status {code}"

    def dismiss(self) -> None:
        """Ask it to end when it has answered."""
        with suppress(OSError):
            self.connection.send(None)

    def end(self, *, within: float = 0.0) -> None:
        """End the process and its group, at once or after a while; nothing of it is left."""
        if self.connection.closed:  # ended before; its number may be somebody else's by now
            return
        with suppress(subprocess.TimeoutExpired):
            self._popen.wait(within)
        # Also after the worker itself is gone: what its environments started may still run.
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)
        self._popen.wait()
        self.connection.close()

    def _send(self) -> bool:
        calls, self._unsent = self._unsent, []
        self._deadline = monotonic() + self._timeout
        try:
            self.connection.send(calls)
        except OSError:
            return False
        return True


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # a real-time signal
        return f"signal {number}"
