"""Processes under watch: forked, limited, ended in time, and looked for when they should be gone. Linux only."""

from __future__ import annotations

import ctypes
import io
import os
import resource
import select
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

PR_SET_CHILD_SUBREAPER = 36
GRACE_SECONDS = 3.0
"""How long processes may take to notice that their parent is gone."""


@dataclass(frozen=True, kw_only=True)
class Ended:
    """How a process ended that was watched."""

    status: int | None
    """Its exit status, -N if signal N ended it; None where it was ended because its time was over."""
    output: str
    """What it printed, to both streams."""
    leftovers: tuple[str, ...]
    """Command lines of processes that outlived it."""


def adopt_orphans() -> None:
    """From now on, processes below this one whose parents die become its children, so that they can be found."""
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def watch(call: Callable[[], object], *, seconds: float, memory: int | None = None) -> Ended:
    """Call something in a process of its own, forked from this one, for so long at most.

    A SystemExit gives the status, any other exception a traceback in the output and status 70.
    """
    with tempfile.TemporaryFile() as log:
        child = os.fork()
        if not child:
            _become(call, log.fileno(), memory)
        status = wait_for(child, seconds)
        leftovers = end_leftovers()
        log.seek(0)
        output = log.read().decode("utf-8", "backslashreplace")
    return Ended(status=status, output=output, leftovers=leftovers)


def wait_for(child: int, seconds: float) -> int | None:
    """The status of a child, or None where it had to be ended, with all that it started."""
    descriptor = os.pidfd_open(child)
    try:
        in_time = bool(select.select([descriptor], [], [], seconds)[0])
    finally:
        os.close(descriptor)
    if not in_time:
        end_below(child)
        with suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return status if in_time else None


def end_leftovers() -> tuple[str, ...]:
    """Command lines of this process's children that do not go away; they are ended."""
    until = time.monotonic() + GRACE_SECONDS
    while (alive := _list_living_children()) and time.monotonic() < until:
        time.sleep(0.02)
    commands = tuple(_command_line(pid) for pid in alive)
    for pid in alive:
        end_below(pid)
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    _list_living_children()
    return commands


def end_below(pid: int) -> None:
    """End what a process started, and what that started."""
    for child in children_of(pid):
        end_below(child)
        with suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)


def children_of(pid: int) -> list[int]:
    """The children of a process that have not ended."""
    children: list[int] = []
    for entry in os.listdir("/proc"):
        with suppress(OSError, ValueError, IndexError):
            stat = Path("/proc", entry, "stat").read_text().rpartition(")")[2].split() if entry.isdigit() else ["Z"]
            if stat[0] != "Z" and int(stat[1]) == pid:
                children.append(int(entry))
    return children


def _list_living_children() -> list[int]:
    """Children of this process that have not ended; those that have are let go."""
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    return children_of(os.getpid())


def _command_line(pid: int) -> str:
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().decode("utf-8", "replace").split("\0")
    except OSError:
        return "?"
    return " ".join(words)[-160:]


def _become(call: Callable[[], object], log: int, memory: int | None) -> NoReturn:
    """Be the child: print into the log, call, and end without going on as the parent would."""
    status = 70
    try:
        quiet = os.open(os.devnull, os.O_RDONLY)
        for descriptor, place in ((quiet, 0), (log, 1), (log, 2)):
            os.dup2(descriptor, place)
        sys.stdout = io.TextIOWrapper(open(1, "wb", 0, closefd=False), "utf-8", write_through=True)  # noqa: SIM115
        sys.stderr = io.TextIOWrapper(open(2, "wb", 0, closefd=False), "utf-8", "backslashreplace", write_through=True)  # noqa: SIM115
        if memory is not None:
            resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
        call()
        status = 0
    except SystemExit as stopped:
        status = stopped.code if isinstance(stopped.code, int) else 0 if stopped.code is None else 1
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(status)
