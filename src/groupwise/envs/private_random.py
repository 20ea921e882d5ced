"""Process-wide generators, lent to one environment at a time.

Many packages of games draw from `random` or `numpy.random` themselves. Side by side, such games would change each other
and the trainer. Here each has a state of its own, put in place while it is called and taken out again after.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np


class PrivateRandom:
    """What one environment finds in the process-wide generators; putting it in place takes some 0.2 ms."""

    __slots__ = ("_state",)

    def __init__(self, seed: int) -> None:
        self._state: tuple[Any, Any] = random.Random(seed).getstate(), np.random.RandomState(seed % 2**32).get_state()

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """Within, the process-wide generators are this environment's; after it, they are as they were before."""
        outside = _states()
        _set(self._state)
        try:
            yield
        finally:
            self._state = _states()
            _set(outside)

    def fork(self) -> PrivateRandom:
        """A copy that goes on from here by itself."""
        twin = PrivateRandom.__new__(PrivateRandom)
        twin._state = self._state
        return twin


def _states() -> tuple[Any, Any]:
    return random.getstate(), np.random.get_state()


def _set(states: tuple[Any, Any]) -> None:
    random.setstate(states[0])
    np.random.set_state(states[1])
