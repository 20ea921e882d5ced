"""Attempts that go on by themselves, where an engine takes requests as they come.

Each acts as soon as its answer is there, and asks again as soon as its environment has acted, while the others wait for
theirs. The loop runs in one thread; whoever answers in another rings a bell.
"""

from __future__ import annotations

import socket
from collections.abc import Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Self

from groupwise.engines.engine import Generation, Request, SubmittingEngine
from groupwise.envs.environment import Outcome
from groupwise.rollout.engine_answers import check_futures, read_future
from groupwise.rollout.hosts.host import ConcurrentHost, Fault

if TYPE_CHECKING:
    from groupwise.rollout.episodes import LiveEpisodes, Move


def play_as_answered(episodes: LiveEpisodes, active: Sequence[int], engine: SubmittingEngine) -> None:
    """Play attempts to their end, each at its own pace."""
    pending: dict[Future[Generation], int] = {}
    moves: dict[int, Move] = {}
    try:
        with _Bell() as bell:
            while active or pending or moves:
                pending |= _submit(engine, episodes.ask(active), bell)
                if pending and not moves:
                    waits_for: list[Future[Any]] = [*pending, episodes.stop.given]
                    wait(waits_for, return_when=FIRST_COMPLETED)
                answered = {future: pending[future] for future in pending if future.done()}
                pending = {future: number for future, number in pending.items() if future not in answered}
                new = episodes.read({number: read_future(engine, future) for future, number in answered.items()})
                moves |= new
                outcomes = _act(episodes, new, moves, bell)
                active = episodes.record({number: moves.pop(number) for number in outcomes}, outcomes)
    finally:
        for future in pending:  # somebody failed: nobody waits for these any more
            future.cancel()


def _submit(engine: SubmittingEngine, requests: Mapping[int, Request], bell: _Bell) -> dict[Future[Generation], int]:
    """Hand requests to the engine; which attempt waits for which answer."""
    if not requests:
        return {}
    futures = engine.submit(list(requests.values()))
    check_futures(engine, futures, len(requests))
    for future in futures:
        future.add_done_callback(bell.ring)
    return dict(zip(futures, requests, strict=True))


def _act(
    episodes: LiveEpisodes, new: Mapping[int, Move], moves: Mapping[int, Move], bell: _Bell
) -> Mapping[int, Outcome | Fault]:
    """Make the new moves; what came of some of all that are under way, or nothing where the bell rang first."""
    texts = {number: action.text for number, (_, action) in new.items()}
    if not moves:
        return {}
    with episodes.waiting.during(len(new)):
        if not isinstance(episodes.host, ConcurrentHost):
            return episodes.host.act(texts)
        episodes.host.begin(texts)
        outcomes = episodes.host.finish(bell.ear)
    bell.hush()
    return outcomes


class _Bell:
    """Rung from any thread; whoever listens to sockets hears it among them."""

    def __init__(self) -> None:
        self.ear, self._clapper = socket.socketpair()
        self.ear.setblocking(False)
        self._clapper.setblocking(False)

    def ring(self, _: object) -> None:
        """Ring, in whatever thread an answer came."""
        with suppress(OSError):  # it is full of ringing, or nobody listens any more
            self._clapper.send(b".")

    def hush(self) -> None:
        """Forget that it rang: who has answered is looked up."""
        with suppress(BlockingIOError):
            self.ear.recv(2**16)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.ear.close()
        self._clapper.close()
