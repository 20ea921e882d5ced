"""What runs inside a worker: calls come in through a pipe and are answered one by one, in order.

This side imports no torch: a worker is an interpreter of its own that holds environments and nothing else.
"""

from __future__ import annotations

import os
import pickle
import select
import signal
from collections.abc import Mapping
from multiprocessing.connection import Connection
from threading import Thread
from typing import Any, cast

from groupwise.core.parts import Slot
from groupwise.core.records import Task
from groupwise.envs.environment import EnvironmentPart
from groupwise.rollout.hosts import Fault, InProcess, fault_of

Call = Task | str | None
"""Open an environment for a task, act in it, or drop it (None, which is not answered)."""


def serve(descriptor: int) -> None:
    """Answer calls until told to stop (None) or the pipe closes.

    The first message is the environment's config; its answer, None or a fault, says whether the worker is ready.
    """
    os.set_inheritable(descriptor, False)  # programs that an environment starts must not hold the pipe open
    _go_with_the_parent(descriptor)
    connection = Connection(descriptor)
    host = _host(connection.recv())
    connection.send_bytes(pickle.dumps(host if isinstance(host, Fault) else None))
    while isinstance(host, InProcess) and (calls := _next(connection)) is not None:
        for key, call in calls:
            if call is None:
                host.close([key])
            else:
                # Sent at once, so that the parent knows which environment is being worked on.
                connection.send_bytes(_answer(host, key, call))


def _next(connection: Connection) -> list[tuple[int, Call]] | None:
    try:
        calls: list[tuple[int, Call]] | None = connection.recv()
    except EOFError:
        return None
    return calls


def _host(config: Mapping[str, Any]) -> InProcess | Fault:
    # Importing somebody's module may raise anything, and the parent should hear of it.
    try:
        return InProcess(cast(EnvironmentPart, Slot("env").fill(config)))
    except BaseException as error:
        return fault_of(error)


def _answer(host: InProcess, key: int, call: Task | str) -> bytes:
    """What came of a call, pickled here, so that an answer that cannot be is a fault of its environment."""
    try:
        answer = host.open({key: call})[key] if isinstance(call, Task) else host.act({key: call})[key]
        return pickle.dumps(answer)
    except BaseException as error:  # a KeyboardInterrupt too: the user's goes to the parent
        host.close([key])
        return pickle.dumps(fault_of(error))


def _go_with_the_parent(descriptor: int) -> None:
    """End this process, and what environments started in its group, when the pipe's other end closes.

    A thread, because an environment that hangs never comes back to read the end of the pipe.
    """

    def watch() -> None:
        closed = select.poll()
        closed.register(descriptor, 0)  # no event but the hang-up, which cannot be left out
        closed.poll()
        os.killpg(0, signal.SIGKILL)

    Thread(target=watch, name="parent-watch", daemon=True).start()
