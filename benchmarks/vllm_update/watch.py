"""Timers around calls inside a stage, which the product knows nothing of."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from typing import Any

from groupwise.training.run import Run

AddSeconds = Callable[[str, float], None]


def watch_parts(run: Run, add: AddSeconds) -> None:
    """Time the engine's batches, the environments, and the weights' way into the engine.

    An engine that is asked request by request has no batches: what its stage takes beside environments is its own.
    """
    for owner, name, part in (
        (run.engine, "generate", "engine"),
        *((run.host, name, "environments") for name in ("open", "act", "close")),
        (run.engine, "load", "weights"),
    ):
        _wrap(owner, name, part, add)


def _wrap(owner: Any, name: str, part: str, add: AddSeconds) -> None:
    call: Callable[..., Any] = getattr(owner, name)

    @functools.wraps(call)
    def call_and_time(*args: Any, **kwargs: Any) -> Any:
        start = time.perf_counter()
        try:
            return call(*args, **kwargs)
        finally:
            add(part, time.perf_counter() - start)

    setattr(owner, name, call_and_time)
