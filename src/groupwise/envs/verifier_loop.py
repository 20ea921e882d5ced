"""What runs inside a verifier's process: requests come in through a pipe and are judged one by one."""

from __future__ import annotations

import importlib
import os
import resource
import signal
from collections.abc import Callable, Mapping
from multiprocessing.connection import Connection
from typing import Any

from groupwise.core.errors import GroupwiseError

MOST_MEMORY = 2 * 2**30
"""Address space of the process: an answer such as 9^9^9^9 must not take the machine's memory."""

Judge = Callable[[Mapping[str, Any]], Any]


def serve(descriptor: int, judge: str) -> None:
    """Judge requests until the pipe closes. The first message says what kept it from starting, or None."""
    os.set_inheritable(descriptor, False)
    connection = Connection(descriptor)
    # The default action: the kernel ends the process when the timer below runs out, whatever code is computing.
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the user's goes to the parent
    try:
        module, _, function = judge.partition(":")
        judged: Judge = getattr(importlib.import_module(module), function)()
    except Exception as error:  # importing somebody's package may raise anything, and the parent should hear of it
        connection.send(f"{type(error).__name__}: {error}")
        return
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (MOST_MEMORY if hard < 0 else min(MOST_MEMORY, hard), hard))
    connection.send(None)
    while True:
        try:
            request, seconds = connection.recv()
        except EOFError:
            return
        connection.send(_verdict(judged, request, seconds))


def _verdict(judge: Judge, request: Mapping[str, Any], seconds: float) -> tuple[str, Any]:
    # Seconds of computing, not of the clock: a busy machine must not turn a right answer into a wrong one.
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        return "told", judge(request)
    except GroupwiseError as error:
        return "fault", str(error)
    except Exception as error:  # a verifier may raise anything at what a model says
        return "failed", f"raised {_first_line(error)}"
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0.0)


def _first_line(error: Exception) -> str:
    return next(iter(f"{type(error).__name__}: {error}".splitlines()))[:300]
