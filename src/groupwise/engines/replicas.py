"""Several servers as one: routing, failures, and limits on running requests.

A session always goes to the same server while that server is in. If a server fails, its requests are sent to another
one with the same seeds, so they give the same tokens. A failed server stays out until a weight sync.
"""

from __future__ import annotations

import hashlib
import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import TypeVar

from groupwise.engines.engine import Request
from groupwise.engines.http_client import ServerFault
from groupwise.engines.replica import Replica
from groupwise.system.errors import EngineFault
from groupwise.system.text import quote_line

Item = TypeVar("Item")
Answer = TypeVar("Answer")
_log = logging.getLogger(__name__)


def choose_replica(session: str, numbers: Sequence[int]) -> int:
    """Choose the replica of a session: the one with the largest hash of its number and the session.

    If a replica is dismissed, only its sessions move; later they return. The number is hashed, not the URL, because
    servers that a run starts have other ports each time.
    """
    return max(numbers, key=lambda number: hashlib.blake2b(f"{number} {session}".encode(), digest_size=8).digest())


def name_session(request: Request) -> str:
    """The routing key of a request: its session, or its seed if it has none."""
    return f"seed {request.seed}" if request.session is None else f"session {request.session}"


def find_other_weights(replicas: Sequence[Replica]) -> Iterator[tuple[Replica, str]]:
    """The replicas whose weights differ from those of the first, or that fail to answer, each with the reason.

    If the first one is wrong, it does not pass its weight check.
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
        # Servers that shard the model differently have other parameter names.
        if expected and checksums and expected.keys() == checksums.keys() and expected != checksums:
            name = next(name for name in expected if expected[name] != checksums[name])
            yield replica, f"after the weight sync its {quote_line(name, limit=80)} differs from that of {first.name}"


class Replicas:
    """Routes calls to replicas, at most `max_in_flight` at a time per replica."""

    def __init__(self, replicas: Sequence[Replica], *, max_in_flight: int) -> None:
        self.members = tuple(replicas)
        self._lock = threading.Lock()
        self._threads = {
            replica.number: ThreadPoolExecutor(max_in_flight, f"groupwise {replica.name}") for replica in replicas
        }
        # A call that failed at one replica is repeated here from the threads of that replica.
        self._places = {replica.number: threading.Semaphore(max_in_flight) for replica in replicas}
        self._is_closed = False
        self._last_reason = ""
        self._num_sent_again, self._num_left, self._num_readmitted = 0, 0, 0

    def list_in(self) -> list[Replica]:
        """The replicas that answer requests."""
        return [replica for replica in self.members if replica.state == "in"]

    def find(self, name: str) -> Replica:
        """The replica with a name."""
        return next(replica for replica in self.members if replica.name == name)

    def route(self, session: str) -> Replica:
        """The replica of a session; a fault if none is left."""
        numbers = [replica.number for replica in self.list_in()]
        if not numbers:
            raise EngineFault(self.describe_end())
        return self.members[choose_replica(session, numbers)]

    def submit(self, session: str, ask: Callable[[Replica], Answer]) -> Future[Answer]:
        """Ask the session's replica; if it fails, ask another one."""

        def ask_until_answered() -> Answer:
            while True:
                try:
                    return self._ask(self.route(session), ask)
                except ServerFault:
                    with self._lock:
                        self._num_sent_again += 1

        return self._submit(self.route(session), ask_until_answered)

    def submit_to(self, replica: Replica, ask: Callable[[Replica], Answer]) -> Future[Answer]:
        """Ask one replica; if it fails, the future has its fault."""
        return self._submit(replica, partial(self._ask, replica, ask))

    def ask_in_batches(
        self,
        items: Sequence[Item],
        sessions: Sequence[str],
        make_ask: Callable[[list[Item]], Callable[[Replica], Sequence[Answer]]],
    ) -> list[Answer]:
        """Answers to items, in their order. Items of one replica form one batch; if it fails, other replicas answer."""
        answers: dict[int, Answer] = {}
        while len(answers) < len(items):
            batches: dict[int, list[int]] = {}
            for place in (place for place in range(len(items)) if place not in answers):
                batches.setdefault(self.route(sessions[place]).number, []).append(place)
            futures = {
                number: self.submit_to(self.members[number], make_ask([items[place] for place in places]))
                for number, places in batches.items()
            }
            for number, future in futures.items():
                try:
                    answers |= zip(batches[number], future.result(), strict=True)
                except ServerFault:
                    with self._lock:
                        self._num_sent_again += len(batches[number])
        return [answers[place] for place in range(len(items))]

    def _submit(self, replica: Replica, work: Callable[[], Answer]) -> Future[Answer]:
        with self._lock:
            if self._is_closed:
                raise EngineFault("the engine is closed; open another one")
            return self._threads[replica.number].submit(work)

    def _ask(self, replica: Replica, ask: Callable[[Replica], Answer]) -> Answer:
        """A replica's answer; a ServerFault if it is out, fails, or is dismissed before it has answered."""
        with self._places[replica.number]:
            membership = replica.membership
            self._check_is_in(replica, membership)
            try:
                answer = ask(replica)
            except ServerFault as fault:
                self.dismiss(replica, str(fault), asked_in=membership)
                raise
            self._check_is_in(replica, membership)
            return answer

    def _check_is_in(self, replica: Replica, membership: int) -> None:
        with self._lock:
            if self._is_closed:
                raise EngineFault("the engine was closed before a request was answered")
            if replica.state != "in" or replica.membership != membership:
                raise ServerFault(self._last_reason)

    def dismiss(self, replica: Replica, reason: str, *, asked_in: int | None = None, is_silent: bool = False) -> None:
        """Send a replica no requests until a weight sync; its waiting and running requests go to other replicas.

        If `asked_in` is given and is not its current membership, nothing happens. `is_silent`: write no warning,
        because an error follows.
        """
        with self._lock:
            if self._is_closed or asked_in not in (None, replica.membership):
                return
            replica.count(faults=int(asked_in is not None))
            was, replica.state = replica.state, "out"
            replica.membership += was != "out"
            self._num_left += was == "in"
            if was != "out":  # later failures there only follow from this one
                self._last_reason = reason
        if was != "out" and not is_silent:
            _log.warning("engine: %s is out until the next weight sync: %s", replica.name, reason)
        if was != "out":
            replica.client.abort()
        replica.revive()

    def put_on_trial(self, replica: Replica) -> None:
        """Note that a replica that was out has loaded the weights; it is admitted after its weight check."""
        with self._lock:
            replica.state = "on trial"

    def admit(self, replica: Replica) -> None:
        """Send requests to a replica: the weight check has passed."""
        with self._lock:
            if replica.state == "on trial":
                replica.state = "in"
                self._num_readmitted += 1

    def take_metrics(self) -> dict[str, float]:
        """The counters of all replicas since the last call, by name."""
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
            metrics |= {f"replicas/{replica.number}/{name}": float(value) for name, value in tally.items()}
        return metrics

    def close(self) -> None:
        """Cancel waiting calls, break off running ones, and let the threads end."""
        with self._lock:
            self._is_closed = True
        for threads in self._threads.values():
            threads.shutdown(wait=False, cancel_futures=True)
        for replica in self.members:
            replica.give_up()

    def describe_end(self) -> str:
        """The error message when no replica is left."""
        num = len(self.members)
        whose = "the engine's server is" if num == 1 else f"all {num} servers of the engine are"
        return f"{whose} out; the last reason: {self._last_reason}"
