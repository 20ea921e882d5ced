"""The run's end of a worker: its process, the connection to it, and the calls it has not answered yet."""

from __future__ import annotations

import json
import os
import secrets
import signal
import socket
import subprocess
import sys
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from time import monotonic
from typing import Any, Generic, TypeVar

from groupwise.core.started_rank import drop_torchrun_variables
from groupwise.rollout.hosts import supervisor as worker_supervisor
from groupwise.rollout.hosts.messages import (
    MAX_ANSWER_BYTES,
    Answer,
    EncodedCall,
    Ready,
    read_answer,
    write_calls,
    write_line,
)

LAST_WORDS_SECONDS = 1.0
"""How long a process whose connection has ended may take to end by itself, so that its exit code can be told."""
ENDING_SECONDS = 2.0
"""How long the supervisor may take to end all that the worker started, before it is ended too."""
NUMBER_BITS = 52
"""Calls are numbered from where nobody can guess, so that no answer can be prepared for one that is yet to come."""

Seat = TypeVar("Seat")


class Worker(Generic[Seat]):
    """A worker process; calls are sent once it is ready and answered in order, one `Seat` a call.

    The process is a fresh interpreter. Forking would copy torch with its locks and threads; multiprocessing's spawn
    would run the parent's main module again, and with it whatever that imports. Between it and this process stands a
    supervisor (see `worker_supervisor`), which ends as the worker ended.
    """

    def __init__(
        self, config: dict[str, Any], *, timeout: float, start_timeout: float, splits: Sequence[str] = ()
    ) -> None:
        self.connection, theirs = socket.socketpair()
        self.connection.settimeout(timeout)  # also for sending: a worker that reads nothing must not hold up the run
        self.waiting: deque[Seat] = deque()
        """Who waits for an answer, in order; the first is being worked on."""
        self.pid: int | None = None
        """Its process id, once it is ready."""
        self.failure: str | None = None
        """Why it could not start."""
        self.start_timeout = start_timeout
        """Seconds that it may take to be ready."""
        self._timeout = timeout
        self._deadline = monotonic() + start_timeout
        self._unsent: list[tuple[int, int, EncodedCall]] = []
        self._numbers: deque[int] = deque([secrets.randbits(NUMBER_BITS)])
        self._received = bytearray()
        reading, self._lifeline = os.pipe()
        with theirs:
            self._popen = _start(theirs.fileno(), reading)
        os.close(reading)
        with suppress(OSError):  # a process that died already is noticed when it is read from
            self.connection.sendall(write_line([self._numbers[0], config, list(splits)]))

    @property
    def is_ready(self) -> bool:
        """Whether it has said that it is."""
        return self.pid is not None

    @property
    def is_alive(self) -> bool:
        """Whether the process runs."""
        return self._popen.poll() is None

    @property
    def seconds_left(self) -> float:
        """Until the next answer is late."""
        return max(self._deadline - monotonic(), 0.0)

    def ask(self, calls: Sequence[tuple[Seat, int, EncodedCall]]) -> bool:
        """Send calls (who waits for the answer, the environment's key, the call); False if the worker is gone."""
        is_idle, first = not self.waiting, secrets.randbits(NUMBER_BITS)
        numbered = [(first + place, key, call) for place, (_, key, call) in enumerate(calls)]
        self.waiting += [seat for seat, _, call in calls if call.what != "close"]
        self._numbers += [number for number, _, call in numbered if call.what != "close"]
        self._unsent += numbered
        return not self.is_ready or self._send(grants_time=is_idle)

    def begin(self, ready: Ready) -> None:
        """It is ready: send what has been waiting for that."""
        self.pid = ready.pid
        if self._unsent:
            self._send(grants_time=True)

    def read_answers(self) -> list[Answer]:
        """Read the answers that have come, in order; EOFError or OSError if the worker is gone.

        What is no answer to the call that is due, such as what a forked copy of the worker says, is left out.
        """
        received = self.connection.recv(2**16)
        if not received:
            raise EOFError
        self._received += received
        if b"\n" not in received:
            if len(self._received) > MAX_ANSWER_BYTES:
                raise OSError("an answer without end")
            return []
        *lines, rest = self._received.split(b"\n")
        self._received = rest
        return [answer for line in lines for answer in self._take_if_due(line)]

    def _take_if_due(self, line: bytearray) -> list[Answer]:
        try:
            number, answer = read_answer(bytes(line))
        except ValueError:
            return []
        if not self._numbers or number != self._numbers[0]:
            return []
        self._numbers.popleft()
        self._deadline = monotonic() + self._timeout
        return [answer]

    def describe_end(self) -> str:
        """Say how the process ended."""
        with suppress(subprocess.TimeoutExpired):
            self._popen.wait(LAST_WORDS_SECONDS)
        code = self._popen.poll()
        if code is None:
            return "the worker closed its connection, or said what is no answer"
        return f"the worker was killed by {_name_signal(-code)}" if code < 0 else f"the worker ended with status {code}"

    def dismiss(self) -> None:
        """Ask it to end when it has answered."""
        with suppress(OSError):
            self.connection.sendall(write_line(None))

    def end(self, *, within: float = 0.0) -> None:
        """End the process and all that it started, at once or after a while; nothing of it is left."""
        if self.connection.fileno() < 0:  # ended before; its number may be somebody else's by now
            return
        with suppress(subprocess.TimeoutExpired):
            self._popen.wait(within)
        os.close(self._lifeline)  # which tells the supervisor to end everything
        with suppress(subprocess.TimeoutExpired):
            self._popen.wait(ENDING_SECONDS)
        # Also after the supervisor itself is gone: an environment may have killed it and left programs in its group.
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._popen.pid, signal.SIGKILL)
        self._popen.wait()
        self.connection.close()

    def _send(self, *, grants_time: bool) -> bool:
        """Send what was not; the time for the next answer begins anew, unless one is being waited for already."""
        calls, self._unsent = self._unsent, []
        if grants_time:
            self._deadline = monotonic() + self._timeout
        try:
            self.connection.sendall(write_calls(calls))
        except OSError:
            return False
        return True


def _start(connection: int, lifeline: int) -> subprocess.Popen[bytes]:
    path = [str(entry) for entry in sys.path]
    arguments = [str(os.getpid()), str(lifeline), str(connection), json.dumps(path)]
    return subprocess.Popen(
        [sys.executable, "-P", str(Path(worker_supervisor.__file__)), *arguments],
        pass_fds=[connection, lifeline],
        stdin=subprocess.DEVNULL,
        stdout=2,  # what environments print must not mix with what a command prints
        # One order of sets in all workers, so that a replay meets the same one.
        env={"PYTHONHASHSEED": "0"} | drop_torchrun_variables(os.environ),
        start_new_session=True,  # a group of its own: ended whole, and not reached by ctrl-c
    )


def _name_signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # a real-time signal
        return f"signal {number}"
