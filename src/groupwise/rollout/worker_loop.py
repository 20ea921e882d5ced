"""What runs inside a worker: calls come in as lines of JSON and are answered one by one, in order.

This side imports no torch: a worker is an interpreter of its own that holds environments and nothing else.
"""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Mapping, Sequence
from typing import Any, cast

from groupwise.data.records import Task
from groupwise.envs.environment import EnvironmentPart
from groupwise.envs.mixture import has_vocabulary
from groupwise.envs.part_queries import ask_instruction, ask_panel, ask_vocabulary
from groupwise.parts.part import Slot
from groupwise.rollout.environment_runner import Fault, InProcess, fault_of
from groupwise.rollout.worker_messages import Answer, ExpertQuestion, ForkOrder, Ready, read_calls, write_answer
from groupwise.system.sandbox import die_with_parent


def serve(descriptor: int) -> None:
    """Answer calls until told to stop (null) or the connection ends.

    The first line is `[number, config, splits]`; its answer, ready or a fault, says whether the worker is. Where splits
    are named, the environment's tasks and words are asked for first: what ends a process then ends this one.
    """
    os.set_inheritable(descriptor, False)  # programs that an environment starts must not hold the connection open
    die_with_parent(os.getppid())
    owner = os.getpid()
    with socket.socket(fileno=descriptor) as connection, connection.makefile("rb") as lines:
        number, config, splits = json.loads(lines.readline())
        host = _open_host(config, splits)
        _send(connection, owner, write_answer(number, host if isinstance(host, Fault) else Ready(owner)))
        while isinstance(host, InProcess) and (calls := read_calls(lines.readline() or b"null")) is not None:
            for number, key, call in calls:
                if call is None:
                    host.close([key])
                else:
                    # Sent at once, so that the run knows which environment is being worked on.
                    _send(connection, owner, _answer_call(host, number, key, call))


def _send(connection: socket.socket, owner: int, line: bytes) -> None:
    if os.getpid() != owner:  # a copy of the worker, which an environment forked and let return
        os._exit(1)
    try:
        connection.sendall(line)
    except OSError:  # the run is gone, or an environment has closed what leads to it
        os._exit(1)


def _open_host(config: Mapping[str, Any], splits: Sequence[str]) -> InProcess | Fault:
    # Importing somebody's module may raise anything, and the run should hear of it.
    try:
        env = cast(EnvironmentPart, Slot("env").fill(config))
        for split in splits:
            ask_panel(env, split)
        if splits and has_vocabulary(env):
            ask_vocabulary(env)
        if splits:
            ask_instruction(env)
        return InProcess(env)
    except BaseException as error:
        return fault_of(error)


def _answer_call(host: InProcess, number: int, key: int, call: Task | str | ExpertQuestion | ForkOrder) -> bytes:
    """What came of a call, written here, so that an answer that cannot be is a fault of its environment."""
    try:
        return write_answer(number, _make_call(host, key, call))
    except BaseException as error:  # a KeyboardInterrupt too: the user's goes to the run
        host.close([key])
        return write_answer(number, fault_of(error))


def _make_call(host: InProcess, key: int, call: Task | str | ExpertQuestion | ForkOrder) -> Answer:
    if isinstance(call, str):
        return host.act({key: call})[key]
    if isinstance(call, ForkOrder):
        return host.observe(key) if call.source is None else host.fork(call.source, [key])[key]
    return host.open({key: call})[key] if isinstance(call, Task) else host.ask_experts([key])[key]
