"""Verdicts from a process of its own: a verifier that raises, hangs, dies or breaks a rule costs its own answer.

Limits that work by signals hold in the main thread only, and not while compiled code computes. A process can be ended
from any thread, whatever it does; and this one ends itself when it has computed for too long. It begins with an empty
environment and no descriptor but its pipe, gives up its rights before it sees an answer, and is replaced after any
answer that broke a rule.
"""

from __future__ import annotations

import atexit
import math
import os
import socket
import subprocess
import sys
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from threading import Lock
from typing import Any

from groupwise.envs.verifier.framed_pipe import FramedPipe, Kind, ProtocolError, read_answer_to, write_request
from groupwise.envs.verifier.judge_process import describe_death
from groupwise.system.errors import EnvironmentFault
from groupwise.system.sandbox import Boundary
from groupwise.system.text import quote_line

START = (
    "import sys; sys.path[:] = {path!r}; from groupwise.envs.verifier.judge_process import serve; "
    "serve({descriptor}, {judge!r}, {parent}, apart={apart})"
)
START_SECONDS = 120.0
"""How long a verifier may take to import what it needs."""
PATIENCE = 4.0
"""How many times its seconds of computing a verdict may take by the clock, on a busy machine."""
# One order of sets everywhere, so that what follows from a seed is the same in every process.
SETTINGS = {"PYTHONHASHSEED": "0", "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
KEPT_VARIABLES = ("LD_LIBRARY_PATH", "PYTHONHOME", "LANG", "LC_ALL", "LC_CTYPE", "TZ")
"""What Python may need of the environment: where its libraries are, how text is encoded, and the time zone."""


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
    function from a request to a score. Any thread may ask; one answer is judged at a time. `apart`: every answer is
    judged by a process that ends with it, for judges that may run what an answer says.
    """

    def __init__(self, judge: str, *, apart: bool = False) -> None:
        self._judge, self._apart = judge, apart
        self._lock = Lock()
        self._owner, self._calls = 0, 0
        self._popen: subprocess.Popen[bytes] | None = None
        self._pipe: FramedPipe | None = None
        self._boundaries: frozenset[Boundary] = frozenset()

    def judge(self, request: Mapping[str, Any], *, seconds: float) -> Verdict:
        """Judge an answer within so many seconds of computing; what goes wrong is a score of 0 with a reason."""
        kind, content = self.ask(request, seconds=seconds)
        if kind == "fault":
            raise EnvironmentFault(quote_line(str(content)))
        if kind == "failed":
            return Verdict(score=0.0, reason=quote_line(f"the verifier {content}"))
        if (
            isinstance(content, bool)
            or not isinstance(content, int | float)
            or not 0 <= content <= 1
            or not math.isfinite(content)
        ):
            return Verdict(score=0.0, reason=quote_line(f"the verifier gave the score {content}"))
        return Verdict(score=float(content))

    def ask(self, request: Mapping[str, Any], *, seconds: float) -> tuple[Kind, Any]:
        """What the judge made of a request; where it failed, how; where the request was at fault, why.

        A verifier that breaks its protocol may have been spoilt by an answer before: a fresh one is asked once more.
        """
        with self._lock:
            try:
                return self._ask(request, seconds)
            except ProtocolError:
                self.close()
            try:
                return self._ask(request, seconds)
            except ProtocolError as error:
                self.close()
                return "failed", f"broke its protocol with {error}"

    def _ask(self, request: Mapping[str, Any], seconds: float) -> tuple[Kind, Any]:
        pipe = self._ensure_started()
        self._calls += 1
        try:
            pipe.send(write_request(self._calls, request, seconds), within=PATIENCE * seconds)
            answer = read_answer_to(self._calls, pipe.receive(within=PATIENCE * seconds))
        except TimeoutError:
            self.close()
            return "failed", f"gave no verdict within {PATIENCE * seconds:g} s"
        except (EOFError, OSError):
            assert self._popen is not None, "a verdict was asked of it"
            code = 0
            with suppress(subprocess.TimeoutExpired):
                code = self._popen.wait(1.0)
            self.close()
            return "failed", describe_death(code, seconds)
        except BaseException:  # ctrl-c, say: the verdict still to come must not be taken for the next one
            self.close()
            raise
        if answer.is_last:
            self.close()
        return answer.kind, answer.content

    def ask_boundaries(self) -> frozenset[Boundary]:
        """The boundaries that hold around the judge; the process is started to say so."""
        with self._lock:
            self._ensure_started()
            return self._boundaries

    def close(self) -> None:
        popen, pipe, self._popen, self._pipe = self._popen, self._pipe, None, None
        if pipe is not None:
            pipe.close()
        if popen is not None and self._owner == os.getpid():
            popen.kill()
            popen.wait()

    def _ensure_started(self) -> FramedPipe:
        """The pipe of a running process; a new one if there is none, it has died or it wrote something unasked."""
        # After a fork the pipe belongs to the parent: two processes would read each other's verdicts.
        is_ours = self._popen is not None and self._owner == os.getpid()
        if is_ours and self._pipe is not None and self._pipe.is_quiet():
            return self._pipe
        self.close()
        ours, theirs = socket.socketpair()
        code = START.format(
            path=[str(entry) for entry in sys.path if entry],  # not the current folder, whatever it is then
            descriptor=theirs.fileno(),
            judge=self._judge,
            parent=os.getpid(),
            apart=self._apart,
        )
        with theirs:
            self._owner = os.getpid()
            self._popen = _start_process(code, theirs.fileno())
        pipe = FramedPipe(ours.detach(), blocks=False)
        trouble = f"it was not ready within {START_SECONDS:g} s"
        try:
            answer = read_answer_to(0, pipe.receive(within=START_SECONDS))
            if answer.kind == "answered":
                self._boundaries, self._pipe = frozenset(answer.content), pipe
                return pipe
            trouble = quote_line(str(answer.content))
        except TimeoutError:
            pass
        except (EOFError, OSError, ProtocolError):
            trouble = "it died at once"
        except BaseException:
            pipe.close()
            self.close()
            raise
        pipe.close()
        self.close()
        raise EnvironmentFault(f"the verifier {self._judge} did not start: {trouble}")


_STARTERS: list[ThreadPoolExecutor] = []
"""The thread that starts this process's verifiers, once there is one. A fork has none of its parent's threads."""
_STARTING = Lock()


def _start_process(code: str, descriptor: int) -> subprocess.Popen[bytes]:
    """Start Python from a thread that lives as long as this process: the kernel ends a child with the thread that
    started it, and any thread may ask for a verdict."""
    with _STARTING:
        if not _STARTERS:
            _STARTERS.append(ThreadPoolExecutor(1, thread_name_prefix="verifiers"))
    started: Future[subprocess.Popen[bytes]] = _STARTERS[0].submit(
        subprocess.Popen,
        [sys.executable, "-P", "-c", code],
        pass_fds=[descriptor],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,  # what verifiers print must not mix with what a command prints
        stderr=subprocess.DEVNULL,  # nor reach a terminal: an answer may be in it
        env={name: os.environ[name] for name in KEPT_VARIABLES if name in os.environ} | SETTINGS,
    )
    try:
        return started.result()
    except BaseException:  # ctrl-c, say: what is started all the same must not stay
        started.add_done_callback(_end)
        raise


def _forget_starter() -> None:
    _STARTERS.clear()
    _STARTING.release()


# Nobody forks while the thread is being made, and a child makes its own.
os.register_at_fork(before=_STARTING.acquire, after_in_parent=_STARTING.release, after_in_child=_forget_starter)


def _end(started: Future[subprocess.Popen[bytes]]) -> None:
    if started.exception() is None:
        started.result().kill()


_VERIFIERS: dict[tuple[str, bool], Verifier] = {}


def find_verifier(judge: str, *, apart: bool = False) -> Verifier:
    """This process's verifier for a judge; it lives as long as the process does."""
    return _VERIFIERS.setdefault((judge, apart), Verifier(judge, apart=apart))


@atexit.register
def close_verifiers() -> None:
    for verifier in _VERIFIERS.values():
        verifier.close()
