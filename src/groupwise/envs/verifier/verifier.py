"""Checks answers in a separate process: if a verifier raises, hangs, dies or breaks a rule, only that answer fails.

Time limits by signals work in the main thread only, and not during compiled code. A process can be killed from any
thread, and this one ends itself after its CPU time. It starts with an empty environment and no descriptor but its pipe.
It gives up its rights before it sees an answer, and is replaced after any answer that broke a rule.
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

from groupwise.envs.verifier import judge_process
from groupwise.system.errors import EnvironmentFault
from groupwise.system.sandbox import Boundary
from groupwise.system.text import quote_line

START = (
    "import sys; sys.path[:] = {path!r}; from groupwise.envs.verifier.judge_process import serve; "
    "serve({descriptor}, {judge!r}, {parent}, apart={apart})"
)
START_SECONDS = 120.0
"""Time limit for the imports of a verifier."""
PATIENCE = 4.0
"""Clock time limit of a check, as a multiple of its CPU seconds."""
# A fixed hash seed gives one order of sets, so a seed gives the same result in every process.
SETTINGS = {"PYTHONHASHSEED": "0", "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
KEPT_VARIABLES = ("LD_LIBRARY_PATH", "PYTHONHOME", "LANG", "LC_ALL", "LC_CTYPE", "TZ")
"""Environment variables that Python may need: library paths, text encoding, the time zone."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Verdict:
    """A verifier's result for an answer."""

    score: float
    """From 0 to 1; 0 if the verifier gave none."""
    reason: str = ""
    """Why there is no score; empty if there is one."""


class Verifier:
    """Judges answers in a process that is started at first use, and again if it died.

    `judge` names a function without arguments, "module:function", that returns a function from a request to a score.
    Any thread may ask; one answer is judged at a time. `apart`: each answer gets its own child process, for judges that
    may run code in an answer.
    """

    def __init__(self, judge: str, *, apart: bool = False) -> None:
        self._judge, self._apart = judge, apart
        self._lock = Lock()
        self._owner, self._calls = 0, 0
        self._popen: subprocess.Popen[bytes] | None = None
        self._pipe: judge_process.FramedPipe | None = None
        self._boundaries: frozenset[Boundary] = frozenset()

    def judge(self, request: Mapping[str, Any], *, seconds: float) -> Verdict:
        """Judge an answer within some CPU seconds; after an error the score is 0, with a reason."""
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

    def ask(self, request: Mapping[str, Any], *, seconds: float) -> tuple[judge_process.Kind, Any]:
        """The judge's answer to a request, or the reason why it failed or the request was invalid.

        If a verifier breaks its protocol, an earlier answer may have damaged it: a new one is asked once more.
        """
        with self._lock:
            try:
                return self._ask(request, seconds)
            except judge_process.ProtocolError:
                self.close()
            try:
                return self._ask(request, seconds)
            except judge_process.ProtocolError as error:
                self.close()
                return "failed", f"broke its protocol with {error}"

    def _ask(self, request: Mapping[str, Any], seconds: float) -> tuple[judge_process.Kind, Any]:
        pipe = self._ensure_started()
        self._calls += 1
        try:
            pipe.send(judge_process.write_request(self._calls, request, seconds), within=PATIENCE * seconds)
            answer = judge_process.read_answer_to(self._calls, pipe.receive(within=PATIENCE * seconds))
        except TimeoutError:
            self.close()
            return "failed", f"gave no verdict within {PATIENCE * seconds:g} s"
        except (EOFError, OSError):
            assert self._popen is not None, "a verdict was asked of it"
            code = 0
            with suppress(subprocess.TimeoutExpired):
                code = self._popen.wait(1.0)
            self.close()
            return "failed", judge_process.describe_death(code, seconds)
        except BaseException:  # such as ctrl-c: the pending result must not be read as the next one
            self.close()
            raise
        if answer.is_last:
            self.close()
        return answer.kind, answer.content

    def ask_boundaries(self) -> frozenset[Boundary]:
        """The active boundaries of the judge; starts the process if necessary."""
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

    def _ensure_started(self) -> judge_process.FramedPipe:
        """The pipe of a running process; a new one if there is none, it has died or it wrote something unasked."""
        # After a fork the pipe belongs to the parent: two processes would read each other's results.
        is_ours = self._popen is not None and self._owner == os.getpid()
        if is_ours and self._pipe is not None and self._pipe.is_quiet():
            return self._pipe
        self.close()
        ours, theirs = socket.socketpair()
        code = START.format(
            path=[str(entry) for entry in sys.path if entry],  # without the current folder
            descriptor=theirs.fileno(),
            judge=self._judge,
            parent=os.getpid(),
            apart=self._apart,
        )
        with theirs:
            self._owner = os.getpid()
            self._popen = _start_process(code, theirs.fileno())
        pipe = judge_process.FramedPipe(ours.detach(), blocks=False)
        trouble = f"it was not ready within {START_SECONDS:g} s"
        try:
            answer = judge_process.read_answer_to(0, pipe.receive(within=START_SECONDS))
            if answer.kind == "answered":
                self._boundaries, self._pipe = frozenset(answer.content), pipe
                return pipe
            trouble = quote_line(str(answer.content))
        except TimeoutError:
            pass
        except (EOFError, OSError, judge_process.ProtocolError):
            trouble = "it died at once"
        except BaseException:
            pipe.close()
            self.close()
            raise
        pipe.close()
        self.close()
        raise EnvironmentFault(f"the verifier {self._judge} did not start: {trouble}")


_STARTERS: list[ThreadPoolExecutor] = []
"""The thread that starts this process's verifiers, if it exists. A forked process has no threads of its parent."""
_STARTING = Lock()


def _start_process(code: str, descriptor: int) -> subprocess.Popen[bytes]:
    """Start Python from a thread that lives as long as this process.

    The kernel ends a child with the thread that started it, and any thread may ask for a result.
    """
    with _STARTING:
        if not _STARTERS:
            _STARTERS.append(ThreadPoolExecutor(1, thread_name_prefix="verifiers"))
    started: Future[subprocess.Popen[bytes]] = _STARTERS[0].submit(
        subprocess.Popen,
        [sys.executable, "-P", "-c", code],
        pass_fds=[descriptor],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,  # prints of verifiers must not mix with a command's output
        stderr=subprocess.DEVNULL,  # nor reach a terminal: they may contain an answer
        env={name: os.environ[name] for name in KEPT_VARIABLES if name in os.environ} | SETTINGS,
    )
    try:
        return started.result()
    except BaseException:  # such as ctrl-c: a process that starts anyway must be killed
        started.add_done_callback(_end)
        raise


def _forget_starter() -> None:
    _STARTERS.clear()
    _STARTING.release()


# No fork while the thread is created; a child creates its own.
os.register_at_fork(before=_STARTING.acquire, after_in_parent=_STARTING.release, after_in_child=_forget_starter)


def _end(started: Future[subprocess.Popen[bytes]]) -> None:
    if started.exception() is None:
        started.result().kill()


_VERIFIERS: dict[tuple[str, bool], Verifier] = {}


def find_verifier(judge: str, *, apart: bool = False) -> Verifier:
    return _VERIFIERS.setdefault((judge, apart), Verifier(judge, apart=apart))


@atexit.register
def close_verifiers() -> None:
    for verifier in _VERIFIERS.values():
        verifier.close()
