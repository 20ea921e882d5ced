"""Several servers as one: who answers what, what happens when one fails, and how much is under way at each.

A session always goes to the same server, as long as it is in. A request whose server fails is sent again elsewhere, the
same: its seed decides the tokens. A server that failed stays out until a hand-over.
"""

from __future__ import annotations

import hashlib
import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

from groupwise.engines.engine import Request
from groupwise.engines.http_client import ServerFault
from groupwise.engines.replica import Replica
from groupwise.system.errors import EngineFault
from groupwise.system.text import quote_line

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


class Replicas:
    """Routes work to replicas, at most `max_in_flight` pieces at a time to each."""

    def __init__(self, replicas: Sequence[Replica], *, max_in_flight: int) -> None:
        self.members = tuple(replicas)
        self._lock = threading.Lock()
        self._threads = {
            replica.number: ThreadPoolExecutor(max_in_flight, f"groupwise {replica.name}") for replica in replicas
        }
        # What fails elsewhere goes on here, from the other one's threads.
        self._places = {replica.number: threading.Semaphore(max_in_flight) for replica in replicas}
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
        return self._submit(self.route(session), self._ask_until_answered, session, ask)

    def submit_to(self, replica: Replica, ask: Callable[[Replica], Answer]) -> Future[Answer]:
        """Ask one replica something; where it fails, the future has its fault."""
        return self._submit(replica, self._ask, replica, ask)

    def ask_in_batches(
        self,
        items: Sequence[Item],
        sessions: Sequence[str],
        make_ask: Callable[[list[Item]], Callable[[Replica], Sequence[Answer]]],
    ) -> list[Answer]:
        """Answers to items, in their order: those of one replica as one batch, again elsewhere where it fails."""
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

    def _submit(self, replica: Replica, work: Callable[..., Answer], *arguments: Any) -> Future[Answer]:
        with self._lock:
            if self._is_closed:
                raise EngineFault("the engine is closed, and answers no requests; open another one")
            return self._threads[replica.number].submit(work, *arguments)

    def _ask_until_answered(self, session: str, ask: Callable[[Replica], Answer]) -> Answer:
        while True:
            try:
                return self._ask(self.route(session), ask)
            except ServerFault:
                with self._lock:
                    self._num_sent_again += 1

    def _ask(self, replica: Replica, ask: Callable[[Replica], Answer]) -> Answer:
        """What a replica answers; a ServerFault where it is out, fails, or has left since it was asked."""
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
        """Send a replica no requests until a hand-over; what waits for it, or is under way there, goes elsewhere.

        Where it has left since the membership in which it was `asked_in`, nothing happens. `is_silent`: an error says
        the reason, so no warning is written.
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
        if was != "out" and not is_silent:
            _log.warning("engine: %s is out until a hand-over brings it back: %s", replica.name, reason)
        if was != "out":
            replica.client.abort()
        replica.revive()

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
            metrics |= {f"replicas/{replica.number}/{name}": float(value) for name, value in tally.items()}
        return metrics

    def close(self) -> None:
        """Cancel what waits, break off what is under way, and let the threads end."""
        with self._lock:
            self._is_closed = True
        for threads in self._threads.values():
            threads.shutdown(wait=False, cancel_futures=True)
        for replica in self.members:
            replica.give_up()

    def describe_end(self) -> str:
        """Say that no replica is left, and why."""
        num = len(self.members)
        whose = "the engine's server is" if num == 1 else f"all {num} servers of the engine are"
        return f"{whose} out; the last reason: {self._last_reason}"
