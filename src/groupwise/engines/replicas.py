"""Several servers as one: who answers what, what happens when one fails, and how much is under way at each.

A session always goes to the same server, as long as it is in. A request whose server fails is sent again elsewhere, the
same: its seed decides the tokens. A server that failed stays out until a hand-over.
"""

from __future__ import annotations

import hashlib
import logging
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Generic, TypeVar

from groupwise.engines.engine import Request
from groupwise.engines.http_client import ServerFault
from groupwise.engines.replica import Replica
from groupwise.system.errors import EngineFault
from groupwise.system.text import quote_line

IDLE_SECONDS = 5.0
"""How long a thread without work stays."""

Item = TypeVar("Item")
Answer = TypeVar("Answer")
_log = logging.getLogger(__name__)


def choose_replica(session: str, numbers: Sequence[int]) -> int:
    """Which of some replicas a session goes to: the one of the largest hash of the two.

    When one leaves only its own sessions move, and they come back to it. The number is hashed, not the URL: servers
    that a run starts have other ports each time.
    """
    return max(numbers, key=lambda number: hashlib.blake2b(f"{number} {session}".encode(), digest_size=8).digest())


def name_session(request: Request) -> str:
    """What a request is routed by: its session, or its seed where it has none."""
    return f"seed {request.seed}" if request.session is None else f"session {request.session}"


def find_other_weights(replicas: Sequence[Replica]) -> Iterator[tuple[Replica, str]]:
    """The replicas whose weights are not those of the first, and why; those that fail at saying it too.

    Where the first is the one that is wrong, it does not pass its canary.
    """
    if len(replicas) < 2:
        return
    first = replicas[0]
    try:
        expected = first.read_checksums()
    except EngineFault as fault:
        yield first, str(fault)
        return
    for replica in replicas[1:] if expected else ():
        try:
            checksums = replica.read_checksums()
        except EngineFault as fault:
            yield replica, str(fault)
            continue
        # Servers that cut the model into other pieces have other names for them.
        if expected and checksums and expected.keys() == checksums.keys() and expected != checksums:
            name = next(name for name in expected if expected[name] != checksums[name])
            yield replica, f"after the hand-over its {quote_line(name, limit=80)} is not that of {first.name}"


class _LeftFault(ServerFault):
    """The server is out, for a reason that was counted already."""


@dataclass(eq=False)
class _Job(Generic[Answer]):
    """Something to ask a server, and whoever waits for the answer."""

    session: str
    ask: Callable[[Replica], Answer]
    may_move: bool
    future: Future[Answer] = field(default_factory=Future)
    is_begun: bool = False


@dataclass(eq=False)
class _ReplicaQueue:
    """Where work for a replica waits, and how many threads do it."""

    replica: Replica
    has_work: threading.Condition
    jobs: deque[_Job[Any]] = field(default_factory=deque)
    num_workers: int = 0
    num_idle: int = 0


class Replicas:
    """Routes work to replicas, at most `max_in_flight` pieces at a time to each."""

    def __init__(self, replicas: Sequence[Replica], *, max_in_flight: int) -> None:
        self.members = tuple(replicas)
        self._max_in_flight = max_in_flight
        self._lock = threading.Lock()
        self._desks = {replica.number: _ReplicaQueue(replica, threading.Condition(self._lock)) for replica in replicas}
        self._is_closed = False
        self._last_reason = ""
        self._num_sent_again, self._num_left, self._num_readmitted = 0, 0, 0

    def list_in(self) -> list[Replica]:
        """The replicas that answer requests."""
        return [replica for replica in self.members if replica.state == "in"]

    def find(self, name: str) -> Replica:
        """The replica of a name."""
        return next(replica for replica in self.members if replica.name == name)

    def route(self, session: str) -> Replica:
        """The replica that a session goes to now; a fault where none is left."""
        numbers = [replica.number for replica in self.list_in()]
        if not numbers:
            raise EngineFault(self.describe_end())
        return self.members[choose_replica(session, numbers)]

    def submit(self, session: str, ask: Callable[[Replica], Answer]) -> Future[Answer]:
        """Ask the session's replica something; where it fails, another one."""
        job = _Job(session, ask, may_move=True)
        with self._lock:
            self._place(job)
        return job.future

    def submit_to(self, replica: Replica, ask: Callable[[Replica], Answer]) -> Future[Answer]:
        """Ask one replica something; where it fails, the future has its fault."""
        job = _Job("", ask, may_move=False)
        with self._lock:
            self._put(job, self._desks[replica.number])
        return job.future

    def ask_in_batches(
        self,
        items: Sequence[Item],
        sessions: Sequence[str],
        ask: Callable[[Replica, Sequence[Item]], Sequence[Answer]],
    ) -> list[Answer]:
        """Answers to items, in their order: those of one replica as one batch, again elsewhere where it fails."""
        answers: dict[int, Answer] = {}
        while len(answers) < len(items):
            batches: dict[int, list[int]] = {}
            for place in (place for place in range(len(items)) if place not in answers):
                batches.setdefault(self.route(sessions[place]).number, []).append(place)
            futures = {
                number: self.submit_to(self.members[number], partial(_ask_some, ask, items, places))
                for number, places in batches.items()
            }
            for number, future in futures.items():
                try:
                    answers |= zip(batches[number], future.result(), strict=True)
                except ServerFault:
                    with self._lock:
                        self._num_sent_again += len(batches[number])
        return [answers[place] for place in range(len(items))]

    def dismiss(self, replica: Replica, reason: str, *, asked_in: int | None = None, is_silent: bool = False) -> None:
        """Send a replica no requests until a hand-over; what waits for it, or is under way there, goes elsewhere.

        Args:
            replica: the one that failed.
            reason: why, in a sentence.
            asked_in: the membership in which it was asked what it failed at; where it has left since, nothing happens.
            is_silent: whether no warning is written, as an error says the reason.
        """
        with self._lock:
            if self._is_closed or asked_in not in (None, replica.membership):
                return
            replica.count(faults=int(asked_in is not None))
            was, replica.state = replica.state, "out"
            replica.membership += was != "out"
            self._num_left += was == "in"
            if was != "out":  # what fails there now fails because it is out
                self._last_reason = reason
            desk = self._desks[replica.number]
            jobs, desk.jobs = desk.jobs, deque()
        if was != "out" and not is_silent:
            _log.warning("engine: %s is out until a hand-over brings it back: %s", replica.name, reason)
        if was != "out":
            replica.client.abort()
        replica.revive()
        for job in jobs:
            self._move(job, ServerFault(reason))

    def put_on_trial(self, replica: Replica) -> None:
        """Note that a replica which was out took the weights: once it proved it, it is admitted."""
        with self._lock:
            replica.state = "on trial"

    def admit(self, replica: Replica) -> None:
        """Send a replica requests: it holds the current weights, and proved it."""
        with self._lock:
            if replica.state == "on trial":
                replica.state = "in"
                self._num_readmitted += 1

    def take_metrics(self) -> dict[str, float]:
        """What all of them did since they were last asked, by name."""
        with self._lock:
            metrics = {
                "replicas/alive": float(len(self.list_in())),
                "replicas/sent_again": float(self._num_sent_again),
                "replicas/left": float(self._num_left),
                "replicas/readmitted": float(self._num_readmitted),
            }
            self._num_sent_again, self._num_left, self._num_readmitted = 0, 0, 0
        for replica in self.members:
            tally = replica.take_tally()
            metrics |= {f"replicas/{replica.number}/{name}": float(value) for name, value in vars(tally).items()}
        return metrics

    def close(self) -> None:
        """Cancel what waits, break off what is under way, and let the threads end."""
        with self._lock:
            self._is_closed = True
            jobs = [job for desk in self._desks.values() for job in desk.jobs]
            for desk in self._desks.values():
                desk.jobs.clear()
                desk.has_work.notify_all()
        for replica in self.members:
            replica.give_up()
        for job in jobs:
            if not job.future.cancel():
                job.future.set_exception(EngineFault("the engine was closed before a request was answered"))

    def _place(self, job: _Job[Any]) -> None:
        """Put a job on the desk of its session's replica; the lock is held."""
        self._put(job, self._desks[self.route(job.session).number])

    def _put(self, job: _Job[Any], desk: _ReplicaQueue) -> None:
        if self._is_closed:
            raise EngineFault("the engine is closed, and answers no requests; open another one")
        desk.jobs.append(job)
        desk.has_work.notify()
        # A thread counts as idle until it has woken: several jobs may have come for it by then.
        if len(desk.jobs) > desk.num_idle and desk.num_workers < self._max_in_flight:
            desk.num_workers += 1
            threading.Thread(
                target=self._work, args=(desk,), name=f"groupwise {desk.replica.name}", daemon=True
            ).start()

    def _work(self, desk: _ReplicaQueue) -> None:
        """A thread's life: take jobs until there are none for a while."""
        while (job := self._take(desk)) is not None:
            if not job.is_begun and not job.future.set_running_or_notify_cancel():
                continue
            job.is_begun = True
            membership = desk.replica.membership
            try:
                self._check_is_in(desk.replica, membership)  # it may have left since the job was put here
                answer = job.ask(desk.replica)
                self._check_is_in(desk.replica, membership)
            except _LeftFault as fault:
                self._move(job, fault)
            except ServerFault as fault:
                self.dismiss(desk.replica, str(fault), asked_in=membership)
                self._move(job, fault)
            except BaseException as error:  # whoever waits for the answer must hear of it, whatever it is
                job.future.set_exception(error)
            else:
                job.future.set_result(answer)

    def _check_is_in(self, replica: Replica, membership: int) -> None:
        """Refuse to ask a replica that is out, or to hear one that has left since it was asked."""
        with self._lock:
            if replica.state != "in" or replica.membership != membership:
                raise _LeftFault(self._last_reason)

    def _take(self, desk: _ReplicaQueue) -> _Job[Any] | None:
        with self._lock:
            while not desk.jobs and not self._is_closed:
                desk.num_idle += 1
                has_come = desk.has_work.wait(IDLE_SECONDS)
                desk.num_idle -= 1
                if not has_come and not desk.jobs:
                    break
            if desk.jobs and not self._is_closed:
                return desk.jobs.popleft()
            desk.num_workers -= 1
            return None

    def _move(self, job: _Job[Any], fault: ServerFault) -> None:
        """Send a job elsewhere, or give up where it may not move or nobody is left."""
        try:
            if not job.may_move:
                raise fault
            with self._lock:
                self._place(job)
                self._num_sent_again += 1
        except EngineFault as error:
            with suppress(InvalidStateError):  # cancelled meanwhile
                job.future.set_exception(error)

    def describe_end(self) -> str:
        """Say that no replica is left, and why."""
        num = len(self.members)
        whose = "the engine's server is" if num == 1 else f"all {num} servers of the engine are"
        return f"{whose} out; the last reason: {self._last_reason}"


def _ask_some(
    ask: Callable[[Replica, Sequence[Item]], Sequence[Answer]],
    items: Sequence[Item],
    places: Sequence[int],
    replica: Replica,
) -> Sequence[Answer]:
    return ask(replica, [items[place] for place in places])
