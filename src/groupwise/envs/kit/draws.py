"""Random draws from a key: the same on every machine and every Python version, and never from a shared generator.

Python promises to keep only the sequence of `Random.random()`; `choice`, `shuffle` and `sample` may change between
versions and would move the task sets, so they are written out here.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from copy import copy
from random import Random
from threading import RLock
from typing import Any, TypeVar

import numpy as np
from numpy.random import MT19937, RandomState

from groupwise.system.errors import ConfigError

Option = TypeVar("Option")


class Draws:
    """A generator of its own for each key, such as ("household", "train", 7)."""

    def __init__(self, *key: object) -> None:
        self._random = Random("/".join(str(part) for part in key))

    def below(self, bound: int) -> int:
        return int(self._random.random() * bound)

    def pick(self, options: Sequence[Option]) -> Option:
        return options[self.below(len(options))]

    def sample(self, options: Sequence[Option], count: int) -> list[Option]:
        """Some of the options, each at most once, in random order."""
        rest = list(options)
        return [rest.pop(self.below(len(rest))) for _ in range(count)]


def draw_uniform(*key: object) -> float:
    """A number in [0, 1) for the key; it needs no generator, so a fork or a replay gets the same one."""
    digest = hashlib.sha256("/".join(str(part) for part in key).encode()).digest()
    return (int.from_bytes(digest[:8], "big") >> 11) * 2.0**-53


# Process-wide generators, lent to one environment at a time.
#
# Many game packages draw from `random` or `numpy.random`, so games would change each other and the trainer. Here each
# game has its own state, which is set during its calls only.

_LENT = RLock()
"""Held while the generators are lent: rollouts may run in several threads."""


class PrivateRandom:
    """One environment's state of the process-wide generators; setting it takes about 0.15 ms."""

    __slots__ = ("_states",)

    def __init__(self, seed: int) -> None:
        self._states: tuple[Any, Any] = Random(seed).getstate(), RandomState(seed % 2**32).get_state()

    @contextmanager
    def in_place(self) -> Iterator[None]:
        with undo_draws():
            _set_states(self._states)
            try:
                yield
            finally:
                self._states = _get_states()

    def fork(self) -> PrivateRandom:
        return copy(self)


@contextmanager
def undo_draws() -> Iterator[None]:
    with _LENT:
        before = _get_states()
        try:
            yield
        finally:
            _set_states(before)


def _get_states() -> tuple[Any, Any]:
    bits: Any = np.random.get_bit_generator()  # type: ignore[attr-defined]  # numpy's types leave it out
    if type(bits) is not MT19937:
        raise ConfigError(
            f"numpy's process-wide generator is a {type(bits).__name__}, but games need MT19937; do not call "
            "np.random.set_bit_generator"
        )
    return random.getstate(), np.random.get_state()


def _set_states(states: tuple[Any, Any]) -> None:
    random.setstate(states[0])
    np.random.set_state(states[1])
