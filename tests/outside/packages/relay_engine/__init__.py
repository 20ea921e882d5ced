"""An engine of two replicas, one of which is always a weight sync behind, that answers in any order.

The late replica samples the first token of a response, the other one the rest: so most responses are the work of two
versions of the weights, and say so in spans.
"""

from __future__ import annotations

import random
import threading
import weakref
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import replace
from typing import Any, ClassVar

from groupwise.engines.transformers_engine import TransformersEngine
from groupwise.extend import Generation, ModelSource, Part, Request, VersionSpan


class RelayEngine(Part, slot="engine"):
    """Two replicas in relay."""

    gives: ClassVar[frozenset[str]] = frozenset({"entropy", "scores", "versions"})
    precision: ClassVar[str] = "float32"

    in_order: bool = False
    """Whether it answers in the order of the requests, all together; else as it pleases."""

    def check_device(self, device: str) -> None:
        """Wherever the learner computes."""

    def open(self, source: ModelSource) -> Relay:
        replicas = TransformersEngine(source.copy_model()), TransformersEngine(source.copy_model())
        return Relay(*replicas) if self.in_order else RelayInAnyOrder(*replicas)


class Relay:
    """Answers in order."""

    gives = RelayEngine.gives

    def __init__(self, late: TransformersEngine, current: TransformersEngine) -> None:
        self._late, self._current = late, current
        self._newest: Mapping[str, Any] = {}

    @property
    def version(self) -> int:
        return self._current.version

    @property
    def context(self) -> int | None:
        return self._current.context

    def score(self, sequences: Sequence[tuple[Any, Any]], *, temperature: float = 1.0) -> list[tuple[float, ...]]:
        return self._current.score(sequences, temperature=temperature)

    def load(self, weights: Mapping[str, Any], *, version: int) -> None:
        self._late.load(self._newest, version=self._current.version)
        self._newest = {name: value.detach().clone() for name, value in weights.items()}
        self._current.load(weights, version=version)

    def generate(self, requests: Sequence[Request]) -> list[Generation]:
        return [self._answer(request) for request in requests]

    def _answer(self, request: Request) -> Generation:
        """One response, whatever else is asked for: the first token by the late replica, the others by the current."""
        asked = replace(request, session=None)
        [first] = self._late.generate([replace(asked, max_tokens=1)])
        if first.stopped or request.max_tokens == 1:
            return first
        prompt, left = (*request.prompt_ids, *first.response_ids), request.max_tokens - 1
        [rest] = self._current.generate([replace(asked, prompt_ids=prompt, seed=request.seed + 1, max_tokens=left)])
        return Generation(
            response_ids=first.response_ids + rest.response_ids,
            logp=first.logp + rest.logp,
            entropy=first.entropy + rest.entropy,
            stopped=rest.stopped,
            versions=_join(*first.versions, *rest.versions),
        )


def _join(first: VersionSpan, rest: VersionSpan) -> tuple[VersionSpan, ...]:
    if first.version == rest.version:
        return (VersionSpan(first.version, first.tokens + rest.tokens),)
    return (first, rest)


class RelayInAnyOrder(Relay):
    """Answers as it pleases: a thread takes whichever request it likes of those that wait."""

    def __init__(self, late: TransformersEngine, current: TransformersEngine) -> None:
        super().__init__(late, current)
        self._waiting: list[tuple[Request, Future[Generation]] | None] = []
        self._more = threading.Condition()
        self.overtakings = 0
        threading.Thread(target=_work, args=(weakref.ref(self), self._waiting, self._more), daemon=True).start()
        weakref.finalize(self, _end, self._waiting, self._more)

    def submit(self, requests: Sequence[Request]) -> list[Future[Generation]]:
        futures: list[Future[Generation]] = [Future() for _ in requests]
        with self._more:
            self._waiting += zip(requests, futures, strict=True)
            self._more.notify()
        return futures


def _work(relay: weakref.ref[RelayInAnyOrder], waiting: list[Any], more: threading.Condition) -> None:
    """Answer until the engine is gone."""
    draw = random.Random()  # no seed: the order is nobody's affair
    while True:
        with more:
            more.wait_for(lambda: waiting)
            place = draw.randrange(len(waiting))
            taken = waiting.pop(place)
        engine = relay()
        if taken is None or engine is None:
            return
        request, future = taken
        engine.overtakings += place > 0
        try:
            future.set_result(engine._answer(request))
        except Exception as error:
            future.set_exception(error)
        del engine


def _end(waiting: list[Any], more: threading.Condition) -> None:
    with more:
        waiting[:] = [None]
        more.notify()
