"""Environments in worker processes: one that hangs or dies ends only its own rollout.

Each worker has many environments and answers calls one by one. The next answer that is due shows which environment is
acting. If that answer is late, the worker is killed and this environment gets a fault. The others are restored in a new
worker: they are opened again and their actions are repeated. An environment depends only on its task, so they must come
back exactly as they were; this is checked.
"""

from __future__ import annotations

import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import weakref
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import count
from multiprocessing.connection import wait
from pathlib import Path
from time import monotonic
from typing import Any, Self, cast

from pydantic_core import PydanticSerializationError, to_json

from groupwise.data.records import StopReason, Task
from groupwise.envs.environment import EnvironmentPart, Observation, Outcome
from groupwise.parts.part import Part, Slot
from groupwise.rollout import worker_supervisor
from groupwise.rollout.environment_runner import Advice, Fault, NoExpert, call_guarded
from groupwise.rollout.worker import (
    ASK,
    CLOSE,
    MAX_ANSWER_BYTES,
    SHOW_FORK,
    Answer,
    EncodedCall,
    Ready,
    read_answer,
    write_act,
    write_calls,
    write_fork,
    write_line,
    write_open,
)
from groupwise.system.errors import ConfigError, EnvironmentFault
from groupwise.system.processes import drop_torchrun_variables

SHUTDOWN_TIMEOUT = 2.0
"""How long workers may take to end by themselves, for the cleanup of environments."""
REHEARSAL_SECONDS = 600.0
"""How long a worker may take to make an environment's task sets before it is ready."""
ANSWERS: Mapping[str, tuple[type[Any], ...]] = {
    "open": (Observation,),
    "fork": (Observation,),
    "act": (Outcome,),
    "ask": (str, type(None), NoExpert),
}
"""The types of answers to each call, without faults."""
LAST_WORDS_SECONDS = 1.0
"""How long a process may take to end after its connection has ended, for its exit code."""
ENDING_SECONDS = 2.0
"""How long the supervisor may take to end all processes of the worker, before it is killed too."""
NUMBER_BITS = 52
"""Calls are numbered from a random start, so that no answer can be prepared in advance."""


@dataclass(eq=False, kw_only=True)
class _WorkerSlot:
    """An environment in a worker, with all that is needed to restore it in another."""

    key: int
    place: int
    task: Task
    calls: list[EncodedCall]
    shown: Answer = None
    num_shown: int = 0
    num_done: int = 0
    fault: Fault | None = None

    @property
    def is_answered(self) -> bool:
        """Whether its last call was answered; repeated calls in a new worker do not change that."""
        return self.fault is not None or self.num_shown == len(self.calls)

    def make_copy(self, key: int) -> _WorkerSlot:
        """The slot of a copy of this environment; in a new worker, the same calls restore it."""
        done = len(self.calls)
        return replace(self, key=key, calls=[*self.calls, SHOW_FORK], num_shown=done, num_done=done)

    def take(self, answer: Answer) -> None:
        """Take the answer to the next call, which may be a repeated one that must give the same state."""
        position, self.num_done = self.num_done, self.num_done + 1
        if isinstance(answer, Fault) and position < self.num_shown:
            self.fail(StopReason.ERROR, f"it failed when its actions were repeated in a new worker: {answer.message}")
        elif isinstance(answer, Fault):
            self.fault = self.fault or answer
        elif not isinstance(answer, ANSWERS[self.calls[position].what]):
            self.fail(StopReason.ERROR, f"{self.describe_call()} was answered with {type(answer).__name__}")
        elif position == self.num_shown:
            self.shown, self.num_shown = answer, self.num_shown + 1
        elif position == self.num_shown - 1 and answer != self.shown:
            self.fail(
                StopReason.ERROR,
                "the same actions led elsewhere in a new worker; open the environment from the task alone, without "
                "global random numbers, clocks or files",
            )

    def fail(self, reason: StopReason, what: str) -> None:
        """The environment is lost; the first fault counts."""
        self.fault = self.fault or Fault(reason=reason, message=f"task {self.task.id!r}: {what}")

    def describe_call(self) -> str:
        replayed = ", repeated in a new worker" if self.num_done < self.num_shown else ""
        call = self.calls[min(self.num_done, len(self.calls) - 1)]
        step = sum(before.what == "act" for before in self.calls[: self.num_done])
        words = {
            "open": "opening",
            "fork": f"copying it at step {step}",
            "act": f"step {step}",
            "ask": f"asking the expert at step {step}",
        }
        return words[call.what] + replayed


class Workers:
    """Runs environments in `num` processes, many to each; every call must be answered within `timeout` seconds.

    The environment is sent as its run-file config, `kind` and fields, not pickled. So a worker imports only what the
    config names, not the parent's main module. A part that no run file can name is an error at once.

    Choices: opening is a call like any other. If a worker died between two calls, it is replaced without a fault. If
    it dies in a call, the acting environment gets a fault, and so does each further one that ends a worker while the
    others are restored. If a new worker does not start, all its environments get a fault; it is started again with the
    next call. The first worker makes the task sets of the `rehearsed` splits and the environment's words, before it is
    ready.
    """

    def __init__(
        self,
        env: EnvironmentPart,
        *,
        num: int,
        timeout: float,
        start_timeout: float = 60.0,
        rehearsed: Sequence[str] = (),
    ) -> None:
        self._name, self._config = type(env).__name__, _check_config(env)
        self._timeout, self._start_timeout = timeout, start_timeout
        self._workers: list[Worker] = []
        self._seats: dict[int, _WorkerSlot] = {}
        self._begun: dict[int, None] = {}
        self._keys = count()
        # Called once: at shutdown, when this object is deleted, or when the interpreter ends.
        self._end = weakref.finalize(self, _end_all, self._workers, os.getpid())
        try:
            for place in range(num):
                self._workers.append(self._start(() if place else rehearsed))
            self._settle(lambda worker: not worker.is_ready and worker.failure is None)
            for failure in [worker.failure for worker in self._workers if worker.failure is not None]:
                raise EnvironmentFault(f"{self._name}: {failure}")
        except BaseException:
            self.shutdown()
            raise

    @property
    def pids(self) -> tuple[int, ...]:
        return tuple(worker.pid for worker in self._workers if worker.pid is not None)

    def open(self, tasks: Mapping[int, Task]) -> dict[int, Observation | Fault]:
        if not self._workers:
            raise EnvironmentFault(f"{self._name}: its workers were shut down; open a new host")
        self.close(list(tasks))
        load = Counter(dict.fromkeys(range(len(self._workers)), 0))
        load.update(seat.place for seat in self._seats.values())
        for number, task in tasks.items():
            place = min(load, key=load.__getitem__)
            load[place] += 1
            call = call_guarded(write_open, task)
            fault, calls = (call, []) if isinstance(call, Fault) else (None, [call])
            self._seats[number] = _WorkerSlot(key=next(self._keys), place=place, task=task, calls=calls, fault=fault)
        return cast(dict[int, Observation | Fault], self._call(tasks))

    def act(self, actions: Mapping[int, str]) -> dict[int, Outcome | Fault]:
        chosen = {number: self._seats[number] for number in actions}
        for number, text in actions.items():
            chosen[number].calls.append(write_act(text))
        return cast(dict[int, Outcome | Fault], self._call(actions))

    def begin(self, actions: Mapping[int, str]) -> None:
        for number, text in actions.items():
            self._seats[number].calls.append(write_act(text))
        self._send(actions)
        self._begun |= dict.fromkeys(actions)

    def finish(self, ear: socket.socket) -> dict[int, Outcome | Fault]:
        self._settle(lambda worker: bool(worker.waiting), ear=ear)
        done = [number for number in self._begun if self._seats[number].is_answered]
        for number in done:
            del self._begun[number]
        return cast(dict[int, Outcome | Fault], self._take_answers(done))

    def ask_experts(self, numbers: Sequence[int]) -> dict[int, Advice]:
        for seat in [self._seats[number] for number in numbers]:
            seat.calls.append(ASK)
        return cast(dict[int, Advice], self._call(numbers))

    def fork(self, source: int, into: Sequence[int]) -> dict[int, Observation | Fault]:
        trunk = self._seats[source]
        assert trunk.is_answered, "an environment is copied between its actions"
        self.close(into)
        copies = [trunk.make_copy(next(self._keys)) for _ in into]
        self._seats |= zip(into, copies, strict=True)
        self._send_calls([(seat, write_fork(trunk.key)) for seat in copies])
        self._settle(lambda worker: bool(worker.waiting))
        return cast(dict[int, Observation | Fault], self._take_answers(into))

    def close(self, numbers: Sequence[int]) -> None:
        gone = [seat for number in numbers if (seat := self._seats.pop(number, None)) is not None]
        for number in numbers:
            self._begun.pop(number, None)
        for place, seats in _group_by_place(gone).items():
            self._workers[place].ask([(seat, seat.key, CLOSE) for seat in seats])

    def shutdown(self) -> None:
        self._end()
        self._seats.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.shutdown()

    def _call(self, numbers: Iterable[int]) -> dict[int, Answer]:
        """Send the last call of each environment, wait for all answers and return them."""
        self._send(numbers)
        self._settle(lambda worker: bool(worker.waiting))
        return self._take_answers(numbers)

    def _send(self, numbers: Iterable[int]) -> None:
        seats = [self._seats[number] for number in numbers]
        self._send_calls([(seat, seat.calls[-1]) for seat in seats if seat.fault is None])

    def _send_calls(self, calls: Sequence[tuple[_WorkerSlot, EncodedCall]]) -> None:
        """Send calls to the workers of their environments; a worker that has ended is replaced."""
        call_of = {seat.key: call for seat, call in calls}
        for place, due in _group_by_place(seat for seat, _ in calls).items():
            worker = self._workers[place]
            if not (worker.is_alive and worker.ask([(seat, seat.key, call_of[seat.key]) for seat in due])):
                self._replace(place)

    def _take_answers(self, numbers: Iterable[int]) -> dict[int, Answer]:
        """The last answers of environments; those with a fault are dropped."""
        seats = {number: self._seats[number] for number in numbers}
        for number, seat in seats.items():
            if seat.fault is not None:
                del self._seats[number]
        return {number: seat.fault or seat.shown for number, seat in seats.items()}

    def _settle(self, is_awaited: Callable[[Worker], bool], *, ear: socket.socket | None = None) -> None:
        """Read from all awaited workers until none is awaited; replace those that hang or die.

        With an `ear`, stop as soon as some started action is done, or the ear is readable.
        """
        extra = [] if ear is None else [ear]
        while awaited := [(place, worker) for place, worker in enumerate(self._workers) if is_awaited(worker)]:
            if ear is not None and any(self._seats[number].is_answered for number in self._begun):
                return
            patience = min(worker.seconds_left for _, worker in awaited)
            readable = wait([*extra, *(worker.connection for _, worker in awaited)], patience)
            for place, worker in awaited:
                is_readable = worker.connection in readable
                if is_readable and self._hear(place, worker):
                    continue
                # Checked again: an answer may have come while the others were read.
                if worker.seconds_left == 0 and (is_readable or not wait([worker.connection], 0)):
                    late = f"no answer within {self._timeout:g} seconds; raise rollout.env_timeout if it is only slow"
                    if not worker.is_ready:
                        late = f"no sign of life within {worker.start_timeout:g} seconds"
                    self._lose(place, StopReason.TIMEOUT, late)
            if ear in readable:
                return

    def _hear(self, place: int, worker: Worker) -> bool:
        """Read from a worker: that it is ready, answers, or its end. Returns whether anything was read."""
        try:
            answers = worker.read_answers()
        except (EOFError, OSError):
            self._lose(place, StopReason.ERROR, worker.describe_end())
            return True
        for answer in answers:
            if worker.is_ready:
                worker.waiting.popleft().take(answer)
            elif isinstance(answer, Ready):
                worker.begin(answer)
            else:
                why = answer.message if isinstance(answer, Fault) else "it does not say that it is ready"
                self._lose(place, StopReason.ERROR, why)
                return True
        return bool(answers)

    def _lose(self, place: int, reason: StopReason, what: str) -> None:
        """A worker hung or died: the acting environment gets a fault, and the others are restored."""
        worker = self._workers[place]
        if not worker.is_ready:
            worker.failure = f"a worker cannot start: {what}"
            worker.waiting.clear()
            worker.end()
            for seat in self._seats_alive(place):
                seat.fail(StopReason.ERROR, worker.failure)
            return
        if worker.waiting:
            blamed = worker.waiting[0]
            blamed.fail(reason, f"{self._name}, {blamed.describe_call()}: {what}")
        self._replace(place)

    def _replace(self, place: int) -> None:
        self._workers[place].end()
        worker = self._workers[place] = self._start()
        for seat in self._seats_alive(place):
            seat.num_done = 0
            worker.ask([(seat, seat.key, call) for call in seat.calls])

    def _seats_alive(self, place: int) -> list[_WorkerSlot]:
        return [seat for seat in self._seats.values() if seat.place == place and seat.fault is None]

    def _start(self, rehearsed: Sequence[str] = ()) -> Worker:
        patience = max(self._start_timeout, REHEARSAL_SECONDS) if rehearsed else self._start_timeout
        return Worker(self._config, timeout=self._timeout, start_timeout=patience, splits=rehearsed)


def _check_config(env: EnvironmentPart) -> dict[str, Any]:
    """The run-file config of an environment, to be sent; an error if a worker cannot make the environment from it."""
    name = type(env).__name__
    if not isinstance(env, Part):
        raise ConfigError(
            f"{name} is not a Part, so workers cannot be told about it; derive it with slot='env', or set "
            "rollout.workers = 0"
        )
    if type(env).__module__ == "__main__":
        raise ConfigError(
            f"{name} stands in the main script, which workers do not run; move it to a module, or set "
            "rollout.workers = 0"
        )
    try:
        config: dict[str, Any] = json.loads(to_json(env.config(), inf_nan_mode="constants"))
    except (PydanticSerializationError, ValueError) as error:
        raise ConfigError(f"{name}: its fields cannot be sent to workers ({error}); use plain values") from None
    if Slot("env").fill(config) != env:
        raise ConfigError(
            f"{name} made from its own config is another; workers need fields that a run file can say, or set "
            "rollout.workers = 0"
        )
    return config


def _group_by_place(seats: Iterable[_WorkerSlot]) -> dict[int, list[_WorkerSlot]]:
    by_place: dict[int, list[_WorkerSlot]] = {}
    for seat in seats:
        by_place.setdefault(seat.place, []).append(seat)
    return by_place


def _end_all(workers: list[Worker], owner: int) -> None:
    if os.getpid() != owner:  # a fork of the parent, which does not own these workers
        return
    for worker in workers:
        worker.dismiss()
    last = monotonic() + SHUTDOWN_TIMEOUT
    for worker in workers:
        worker.end(within=max(last - monotonic(), 0.0))
    workers.clear()


class Worker:
    """A worker as the run sees it: its process, the connection to it, and the calls without an answer.

    Calls are sent once it is ready and answered in order. The process is a new interpreter: a fork would copy torch
    with its locks and threads, and multiprocessing's spawn would run the parent's main module again. Between the two
    processes is a supervisor (see `worker_supervisor`), which ends with the worker's exit code.
    """

    def __init__(
        self, config: dict[str, Any], *, timeout: float, start_timeout: float, splits: Sequence[str] = ()
    ) -> None:
        self.connection, theirs = socket.socketpair()
        self.connection.settimeout(timeout)  # also for sending: a worker that does not read must not block the run
        self.waiting: deque[_WorkerSlot] = deque()
        """The environments that wait for an answer, in order; the first is acting."""
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
        arguments = [
            str(os.getpid()),
            str(reading),
            str(theirs.fileno()),
            json.dumps([str(entry) for entry in sys.path]),
        ]
        with theirs:
            self._popen = subprocess.Popen(
                [sys.executable, "-P", str(Path(worker_supervisor.__file__)), *arguments],
                pass_fds=[theirs.fileno(), reading],
                stdin=subprocess.DEVNULL,
                stdout=2,  # the output of environments must not mix with that of a command
                # The same order of sets in all workers, for repeated actions.
                env={"PYTHONHASHSEED": "0"} | drop_torchrun_variables(os.environ),
                start_new_session=True,  # its own group: ended as a whole, and not reached by ctrl-c
            )
        os.close(reading)
        with suppress(OSError):  # if the process has died, the next read reports it
            self.connection.sendall(write_line([self._numbers[0], config, list(splits)]))

    @property
    def is_ready(self) -> bool:
        return self.pid is not None

    @property
    def is_alive(self) -> bool:
        return self._popen.poll() is None

    @property
    def seconds_left(self) -> float:
        return max(self._deadline - monotonic(), 0.0)

    def ask(self, calls: Sequence[tuple[_WorkerSlot, int, EncodedCall]]) -> bool:
        """Send calls (slot, the environment's key, the call); False if the worker has ended."""
        is_idle, first = not self.waiting, secrets.randbits(NUMBER_BITS)
        numbered = [(first + place, key, call) for place, (_, key, call) in enumerate(calls)]
        self.waiting += [seat for seat, _, call in calls if call.what != "close"]
        self._numbers += [number for number, _, call in numbered if call.what != "close"]
        self._unsent += numbered
        return not self.is_ready or self._send(grants_time=is_idle)

    def begin(self, ready: Ready) -> None:
        """It is ready: send the waiting calls."""
        self.pid = ready.pid
        if self._unsent:
            self._send(grants_time=True)

    def read_answers(self) -> list[Answer]:
        """Read the answers that have come, in order; EOFError or OSError if the worker has ended.

        Lines that do not answer the call that is due, such as those of a forked copy of the worker, are ignored.
        """
        received = self.connection.recv(2**16)
        if not received:
            raise EOFError
        self._received += received
        if b"\n" not in received:
            if len(self._received) > MAX_ANSWER_BYTES:
                raise OSError("an answer without end")
            return []
        *lines, self._received = self._received.split(b"\n")
        answers: list[Answer] = []
        for line in lines:
            with suppress(ValueError):
                number, answer = read_answer(bytes(line))
                if self._numbers and number == self._numbers[0]:
                    self._numbers.popleft()
                    self._deadline = monotonic() + self._timeout
                    answers.append(answer)
        return answers

    def describe_end(self) -> str:
        with suppress(subprocess.TimeoutExpired):
            self._popen.wait(LAST_WORDS_SECONDS)
        code = self._popen.poll()
        if code is None:
            return "the worker closed its connection, or sent an invalid answer"
        if code >= 0:
            return f"the worker ended with status {code}"
        named = {member.value: member.name for member in signal.Signals}  # not real-time signals
        return f"the worker was killed by {named.get(-code, f'signal {-code}')}"

    def dismiss(self) -> None:
        with suppress(OSError):
            self.connection.sendall(write_line(None))

    def end(self, *, within: float = 0.0) -> None:
        """End the process and all processes that it started, at once or after `within` seconds."""
        if self.connection.fileno() < 0:  # ended before; its process id may be reused by now
            return
        with suppress(subprocess.TimeoutExpired):
            self._popen.wait(within)
        os.close(self._lifeline)  # then the supervisor ends everything
        with suppress(subprocess.TimeoutExpired):
            self._popen.wait(ENDING_SECONDS)
        # Also if the supervisor has ended: an environment may have killed it and left programs in its group.
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._popen.pid, signal.SIGKILL)
        self._popen.wait()
        self.connection.close()

    def _send(self, *, grants_time: bool) -> bool:
        """Send the unsent calls; the timeout of the next answer starts again, unless one is already due."""
        calls, self._unsent = self._unsent, []
        if grants_time:
            self._deadline = monotonic() + self._timeout
        try:
            self.connection.sendall(write_calls(calls))
        except OSError:
            return False
        return True
