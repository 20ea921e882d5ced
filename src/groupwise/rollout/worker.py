"""The code of a worker process, and the protocol between a run and its workers.

They exchange lines of JSON, because reading JSON executes no code. A line of calls is a list of
`[number, environment, what, ...]`; calls are answered one by one, in order. A line of answer is `[number, what, ...]`
with the number of its call. So late answers, and answers of a copy of the worker that an environment forked, are
ignored.

This module imports no torch: a worker only runs environments.
"""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, cast

from pydantic_core import to_json

from groupwise.data.exact_values import read_value, write_value
from groupwise.data.records import StopReason, Task
from groupwise.envs.environment import EnvironmentPart, Observation, Outcome
from groupwise.envs.mixture import has_vocabulary
from groupwise.envs.part_queries import ask_instruction, ask_task_set, ask_vocabulary
from groupwise.envs.plain_records import to_plain_advice, to_plain_observation, to_plain_outcome
from groupwise.parts.part import Slot
from groupwise.rollout.environment_runner import Advice, Fault, InProcess, NoExpert, call_guarded, fault_of
from groupwise.system.errors import EnvironmentFault
from groupwise.system.sandbox import die_with_parent

MAX_ANSWER_BYTES = 2**23
"""Of one answer: more than an observation, its key and the info of a step can take."""


@dataclass(frozen=True)
class Ready:
    """A worker has made its environment part and can be called."""

    pid: int


Answer = Observation | Outcome | Advice | Ready


def serve(descriptor: int) -> None:
    """Answer calls until a null is received or the connection ends.

    The first line is `[number, config, splits]`; its answer is ready or a fault. If splits are given, the environment
    first makes their tasks and its words. If that ends the process, it ends this one and not the run.
    """
    os.set_inheritable(descriptor, False)  # programs that an environment starts must not keep the connection open
    die_with_parent(os.getppid())
    owner = os.getpid()
    with socket.socket(fileno=descriptor) as connection, connection.makefile("rb") as lines:
        number, config, splits = json.loads(lines.readline())
        host = _open_host(config, splits)
        _send(connection, owner, write_answer(number, host if isinstance(host, Fault) else Ready(owner)))
        while isinstance(host, InProcess) and (calls := json.loads(lines.readline() or b"null")) is not None:
            for number, key, what, *words in calls:
                if what == "close":
                    host.close([key])
                    continue
                try:  # an answer that cannot be written is a fault of its environment
                    answer = write_answer(number, _make_call(host, key, what, words))
                except BaseException as error:  # a KeyboardInterrupt too, because the user's goes to the run
                    host.close([key])
                    answer = write_answer(number, fault_of(error))
                # Sent at once, so that the run knows which environment is acting.
                _send(connection, owner, answer)


def _send(connection: socket.socket, owner: int, line: bytes) -> None:
    if os.getpid() != owner:  # a copy of the worker, which an environment forked and let return
        os._exit(1)
    try:
        connection.sendall(line)
    except OSError:  # the run has ended, or an environment has closed the connection
        os._exit(1)


def _open_host(config: Mapping[str, Any], splits: Sequence[str]) -> InProcess | Fault:
    # The import of a user's module may raise anything; the run reports it.
    try:
        env = cast(EnvironmentPart, Slot("env").fill(config))
        for split in splits:
            ask_task_set(env, split)
        if splits and has_vocabulary(env):
            ask_vocabulary(env)
        if splits:
            ask_instruction(env)
        return InProcess(env)
    except BaseException as error:
        return fault_of(error)


def _make_call(host: InProcess, key: int, what: str, words: Sequence[Any]) -> Answer:
    if what == "act":
        return host.act({key: words[0]})[key]
    if what == "open":
        name, env, split, seed, payload, tags = words
        task = Task(id=name, env=env, split=split, seed=seed, payload=read_value(payload), tags=tuple(tags))
        return host.open({key: task})[key]
    if what == "fork":
        return host.observe(key) if words[0] is None else host.fork(words[0], [key])[key]
    return host.ask_experts([key])[key]


# Calls, as the run writes them.


class EncodedCall(NamedTuple):
    """A call as JSON, encoded once also if it is sent several times."""

    what: str
    """open, fork, act, ask or close; a close is not answered."""
    words: str
    """The call as JSON, without its number and environment."""


CLOSE = EncodedCall("close", '"close"')
ASK = EncodedCall("ask", '"ask"')
SHOW_FORK = EncodedCall("fork", '"fork",null')
"""Replaces the copying when a copy is restored: after its source's actions, it only returns its observation."""


def write_open(task: Task) -> EncodedCall:
    """The call that opens an environment; EnvironmentFault if the task cannot be written."""
    try:
        payload = write_value(task.payload)
    except TypeError as error:
        raise EnvironmentFault(f"the task's payload holds {error}; give JSON values alone") from None
    words = ("open", task.id, task.env, task.split, task.seed, payload, task.tags)
    return EncodedCall("open", json.dumps(words)[1:-1])


def write_act(action: str) -> EncodedCall:
    return EncodedCall("act", f'"act",{json.dumps(action)}')


def write_fork(source: int) -> EncodedCall:
    return EncodedCall("fork", f'"fork",{source}')


def write_calls(calls: Sequence[tuple[int, int, EncodedCall]]) -> bytes:
    listed = ",".join([f"[{number},{key},{call.words}]" for number, key, call in calls])
    return f"[{listed}]\n".encode()


def write_line(value: object) -> bytes:
    """Any JSON value as a line; lone surrogates are kept."""
    return json.dumps(value, separators=(",", ":")).encode() + b"\n"


# Answers: written in the worker, and read in the run. The run checks every field again, because a worker runs the code
# of users.


def write_answer(number: int, answer: Answer) -> bytes:
    """An answer to the call of a number, as a line."""
    words: tuple[Any, ...]
    if isinstance(answer, Observation | Outcome):
        seen = answer if isinstance(answer, Observation) else answer.observation
        shown = (seen.text, seen.state_key, seen.admissible, seen.goal)
        words = ("observation", *shown)
        if isinstance(answer, Outcome):
            ending = (answer.terminated, answer.truncated, answer.accepted, answer.success)
            words = ("outcome", shown, answer.reward, ending, answer.note, answer.info)
    elif isinstance(answer, Fault):
        words = ("fault", answer.reason.value, answer.message)
    elif isinstance(answer, Ready):
        words = ("ready", answer.pid)
    else:
        words = ("no expert",) if isinstance(answer, NoExpert) else ("advice", answer)
    return to_json((number, *words), inf_nan_mode="constants") + b"\n"


def read_answer(line: bytes) -> tuple[int, Answer]:
    """The call's number and the answer; ValueError if the line is no answer."""
    try:
        number, what, *words = json.loads(line)
        read = _READ[what]
    except (ValueError, TypeError, KeyError, RecursionError):
        raise ValueError("no answer") from None
    if type(number) is not int:
        raise ValueError("no answer")
    return number, call_guarded(read, *words)


def _read_observation(text: Any, key: Any, admissible: Any, goal: Any) -> Observation:
    listed = tuple(admissible) if type(admissible) is list else admissible
    return to_plain_observation(Observation(text=text, state_key=_tuples(key), admissible=listed, goal=goal))


def _read_outcome(seen: Any, reward: Any, ending: Any, note: Any, info: Any) -> Outcome:
    terminated, truncated, accepted, success = ending
    outcome = Outcome(
        observation=_read_observation(*seen),
        reward=reward,
        terminated=terminated,
        truncated=truncated,
        accepted=accepted,
        success=success,
        note=note,
        info=info,
    )
    return to_plain_outcome(outcome)


def _tuples(key: Any) -> Any:
    """A key with tuples again, which JSON wrote as lists."""
    return tuple(map(_tuples, key)) if type(key) is list else key


_READ: Mapping[str, Callable[..., Answer]] = {
    "observation": _read_observation,
    "outcome": _read_outcome,
    "advice": to_plain_advice,
    "no expert": NoExpert,
    "fault": lambda reason, message: Fault(reason=StopReason(reason), message=str(message)),
    "ready": lambda pid: Ready(int(pid)),
}
