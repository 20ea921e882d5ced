"""Engines that answer as requests come, for tests of the episode loop: in any order, by a thread of their own."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from random import Random
from typing import Any

from groupwise.engines.engine import Generation, Request, VersionSpan
from groupwise.parts.slots import CAPABILITIES

SECONDS = 20.0
"""After which a test that waits for something has failed."""


class Gambling:
    """Says random words, drawn from the seed and the prompt of a request alone; two versions of weights take turns."""

    gives = frozenset(CAPABILITIES)
    version, context = 4, None

    def __init__(self, words: Sequence[int], stop: int) -> None:
        self._words, self._stop = words, stop

    def generate(self, requests: Sequence[Request]) -> list[Generation]:
        return [self.answer(request) for request in requests]

    def answer(self, request: Request) -> Generation:
        draw = Random(f"{request.seed} {request.prompt_ids}")
        ids: list[int] = []
        while len(ids) < request.max_tokens and self._stop not in ids:
            ids.append(draw.choice([*self._words, self._stop]))
        first = draw.randrange(len(ids) + 1)
        spans = [VersionSpan(3, first), VersionSpan(4, len(ids) - first)]
        logp = tuple(-draw.random() for _ in ids)
        return Generation(
            response_ids=tuple(ids),
            logp=logp,
            entropy=tuple(-each for each in logp),
            stopped=ids[-1] == self._stop,
            versions=tuple(span for span in spans if span.tokens),
        )

    def score(self, sequences: Any, *, temperature: float = 1.0) -> list[tuple[float, ...]]:
        raise AssertionError("nobody scores while rollouts are played")

    def load(self, weights: Mapping[str, Any], *, version: int) -> None:
        raise AssertionError("nobody hands weights over while rollouts are played")


class Answering:
    """Takes requests as they come; a thread answers whichever of them `choose` picks of those that wait.

    `choose` sees the requests that wait and gives the place of one, or None to wait for a further one.
    """

    def __init__(self, engine: Any, choose: Callable[[Sequence[Request]], int | None]) -> None:
        self._engine, self._choose = engine, choose
        self._pending: list[tuple[Request, Future[Generation]]] = []
        self._changed = threading.Condition()
        self._is_over = False
        self.gives, self.version, self.context = engine.gives, engine.version, engine.context
        self.submitted: list[Request] = []
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._thread.start()

    def generate(self, requests: Sequence[Request]) -> list[Generation]:
        raise AssertionError("an engine that has `submit` is not asked in step")

    def submit(self, requests: Sequence[Request]) -> list[Future[Generation]]:
        futures: list[Future[Generation]] = [Future() for _ in requests]
        with self._changed:
            self.submitted += requests
            self._pending += zip(requests, futures, strict=True)
            self._changed.notify()
        return futures

    def close(self) -> None:
        with self._changed:
            self._is_over = True
            self._changed.notify()
        self._thread.join(SECONDS)

    def _work(self) -> None:
        while True:
            with self._changed:
                place = None
                while not self._is_over and place is None:
                    place = self._choose([request for request, _ in self._pending]) if self._pending else None
                    if place is None and not self._changed.wait(SECONDS):
                        self._fail(TimeoutError(f"{len(self._pending)} requests wait, and no other one comes"))
                if place is None:
                    return
                request, future = self._pending.pop(place)
            if not future.cancelled():
                future.set_result(self._engine.answer(request))

    def _fail(self, error: Exception) -> None:
        for _, future in self._pending:
            future.set_exception(error)
        self._pending.clear()


def by_lot(seed: int) -> Callable[[Sequence[Request]], int]:
    """Any of those that wait."""
    draw = Random(seed)
    return lambda waiting: draw.randrange(len(waiting))
