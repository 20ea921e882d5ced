"""The process between a run and a worker: when the run has ended, it ends the worker and all processes of the worker.

The worker's environments may hang, hold the interpreter's lock, ignore signals or start programs, so it cannot end
itself reliably. This process runs no code of environments. It runs as a script and imports nothing of groupwise, so it
starts within milliseconds and stays small. It forks the worker before any other import.

It knows that the run has ended when a pipe is closed that only the run keeps open or, if a copy of the run keeps it
open, when its own parent process changes. On Linux, processes without a parent become its children, in whatever group
or session; elsewhere it finds only those in its process group.
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import select
import signal
import sys
import time
from typing import NoReturn

PULSE_MILLISECONDS = 500
"""How often it checks its parent process, if nothing else wakes it."""
_PR_SET_CHILD_SUBREAPER = 36


def supervise(parent: int, lifeline: int, descriptor: int, path: list[str]) -> None:
    """Fork a worker and watch it until it or the run ends; only the worker returns from here."""
    _adopt_orphans()
    worker = os.fork()
    if worker == 0:
        os.close(lifeline)
        sys.path[:] = path
        from groupwise.rollout.worker import serve  # the first import of anything heavy

        serve(descriptor)
        return
    os.close(descriptor)
    for ignored in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):  # meant for the worker, if at all
        signal.signal(ignored, signal.SIG_IGN)
    _watch(parent, lifeline, worker)


def _watch(parent: int, lifeline: int, worker: int) -> NoReturn:
    woken, wakes = os.pipe()
    os.set_blocking(wakes, False)
    signal.set_wakeup_fd(wakes, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)  # a handler of our own, so that the pipe is written to
    events = select.poll()
    events.register(lifeline, 0)  # only the hang-up, which is always reported
    events.register(woken, select.POLLIN)
    while True:
        status = _reap(worker)
        if status is not None:
            _end_children()
            _leave_as(status)
        happened = dict(events.poll(PULSE_MILLISECONDS))
        if woken in happened:
            os.read(woken, 4096)
        if lifeline in happened or os.getppid() != parent:
            os.kill(worker, signal.SIGKILL)
            _end_children()
            os.killpg(0, signal.SIGKILL)  # on systems without orphan adoption: those in the group


def _reap(worker: int) -> int | None:
    """Reap the children that have died; returns the worker's status if it is among them."""
    worker_status = None
    try:
        while (dead := os.waitpid(-1, os.WNOHANG))[0]:
            worker_status = dead[1] if dead[0] == worker else worker_status
    except ChildProcessError:  # none is left
        pass
    return worker_status


def _end_children() -> None:
    """Kill all child processes; those whose parents die become children and are next."""
    while True:
        for child in _list_children():
            try:
                os.kill(child, signal.SIGKILL)
            except OSError:  # already dead, or of another user
                continue
        try:
            if os.waitpid(-1, os.WNOHANG)[0] == 0:
                time.sleep(0.001)
        except ChildProcessError:
            return


def _list_children() -> list[int]:
    """The child processes; empty if there is no /proc."""
    ours, children = str(os.getpid()), []
    for name in os.listdir("/proc") if os.path.isdir("/proc") else ():
        try:
            with open(f"/proc/{name}/stat", encoding="utf-8", errors="replace") as line:
                parent = line.read().rpartition(")")[2].split()[1]
        except (OSError, IndexError):  # no process, or it has ended
            continue
        if parent == ours:
            children.append(int(name))
    return children


def _adopt_orphans() -> None:
    if sys.platform.startswith("linux"):
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def _leave_as(status: int) -> NoReturn:
    """End with the worker's exit code or signal, so that the run can report it."""
    if os.WIFSIGNALED(status):
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # the worker wrote its own
        number = os.WTERMSIG(status)
        if number != signal.SIGKILL:
            signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
    os._exit(os.waitstatus_to_exitcode(status))


if __name__ == "__main__":
    supervise(int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), json.loads(sys.argv[4]))
