"""Verdicts from a process of its own: a verifier that raises, hangs or dies costs its own answer, and says why.

Limits that work by signals hold in the main thread only, and not while compiled code computes. A process can be ended
from any thread, whatever it does; and this one ends itself when it has computed for too long.
"""

from __future__ import annotations

import atexit
import math
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from signal import SIGPROF, Signals
from threading import Lock
from typing import Any, Literal

from groupwise.core.errors import EnvironmentFault

START = (
    "import sys; sys.path[:] = {path!r}; from groupwise.envs.verifier_loop import serve; serve({descriptor}, {judge!r})"
)
START_SECONDS = 120.0
"""How long a verifier may take to import what it needs."""
PATIENCE = 4.0
"""How many times its seconds of computing a verdict may take by the clock, on a busy machine."""

Kind = Literal["told", "failed", "fault"]
"""What came of a request: an answer, a judge that failed at it, or a request that cannot be meant."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Verdict:
    """What a verifier said of an answer."""

    score: float
    """From 0 to 1, as the verifier gives it; 0 where it gave none."""
    reason: str = ""
    """Why there is no score; empty where there is one."""


class Verifier:
    """Judges answers in a process that is started when it is first needed, and again after it has died.

    `judge` names a function of no arguments, "module:function", that imports what it needs and returns what judges: a
    function from a request to a score. Any thread may ask; one answer is judged at a time.
    """

    def __init__(self, judge: str) -> None:
        self._judge = judge
        self._lock = Lock()
        self._owner = 0
        self._popen: subprocess.Popen[bytes] | None = None
        self._connection: Connection | None = None

    def verdict(self, request: Mapping[str, Any], *, seconds: float) -> Verdict:
        """Judge an answer within so many seconds of computing; what goes wrong is a score of 0 with a reason."""
        kind, told = self.ask(request, seconds=seconds)
        if kind == "fault":
            raise EnvironmentFault(str(told))
        if kind == "failed":
            return Verdict(score=0.0, reason=f"the verifier {told}")
        if not (isinstance(told, int | float) and math.isfinite(told)):
            return Verdict(score=0.0, reason=f"the verifier gave the score {told}")
        return Verdict(score=float(told))

    def ask(self, request: Mapping[str, Any], *, seconds: float) -> tuple[Kind, Any]:
        """What the judge made of a request; where it failed, how; where the request was at fault, why."""
        with self._lock:
            connection = self._ready()
            try:
                connection.send((dict(request), seconds))
                if not connection.poll(PATIENCE * seconds):
                    self.close()
                    return "failed", f"gave no verdict within {PATIENCE * seconds:g} s"
                kind, told = connection.recv()
            except (EOFError, OSError):
                return "failed", self._last_words(seconds)
            except BaseException:  # ctrl-c, say: the verdict still to come must not be taken for the next one
                self.close()
                raise
        return kind, told

    def close(self) -> None:
        """End the process, if there is one."""
        popen, connection, self._popen, self._connection = self._popen, self._connection, None, None
        if connection is not None:
            connection.close()
        if popen is not None and self._owner == os.getpid():
            popen.kill()
            popen.wait()

    def _ready(self) -> Connection:
        # After a fork the pipe belongs to the parent: two processes would read each other's verdicts.
        alive = self._popen is not None and self._owner == os.getpid() and self._popen.poll() is None
        if alive and self._connection is not None:
            return self._connection
        self.close()
        self._connection = self._start()
        return self._connection

    def _start(self) -> Connection:
        ours, theirs = Pipe()
        code = START.format(path=[str(entry) for entry in sys.path], descriptor=theirs.fileno(), judge=self._judge)
        with theirs:
            self._popen = subprocess.Popen(
                [sys.executable, "-c", code],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,  # what verifiers print must not mix with what a command prints
                # One order of sets everywhere, so that what follows from a seed is the same in every process.
                env=os.environ | {"PYTHONHASHSEED": "0", "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
            )
        self._owner = os.getpid()
        told: str | None = f"it was not ready within {START_SECONDS:g} s"
        try:
            if ours.poll(START_SECONDS):
                told = ours.recv()
        except (EOFError, OSError):
            told = "it died at once"
        if told is not None:
            ours.close()
            self.close()
            raise EnvironmentFault(f"the verifier {self._judge} did not start: {told}")
        return ours

    def _last_words(self, seconds: float) -> str:
        """Why the process is gone."""
        assert self._popen is not None, "a verdict was asked of it"
        try:
            code = self._popen.wait(1.0)
        except subprocess.TimeoutExpired:
            code = 0
        self.close()
        if code == -SIGPROF:
            return f"gave no verdict within {seconds:g} s of computing"
        return f"was killed by {Signals(-code).name}" if code < 0 else f"ended with {code}"


_VERIFIERS: dict[str, Verifier] = {}


def verifier(judge: str) -> Verifier:
    """This process's verifier for a judge; it lives as long as the process does."""
    return _VERIFIERS.setdefault(judge, Verifier(judge))


@atexit.register
def close_verifiers() -> None:
    """End all verifiers of this process."""
    for each in _VERIFIERS.values():
        each.close()
