"""Random draws from a key: the same on every machine and every Python version, and never from a shared generator.

Python promises to keep only the sequence of `Random.random()`; `choice`, `shuffle` and `sample` may change between
versions and would move the panels, so they are written out here.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from ctypes import memmove, string_at
from functools import cache
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
        """A whole number in [0, bound)."""
        return int(self._random.random() * bound)

    def pick(self, options: Sequence[Option]) -> Option:
        """One of the options."""
        return options[self.below(len(options))]

    def sample(self, options: Sequence[Option], count: int) -> list[Option]:
        """Some of the options, each at most once, in random order."""
        rest = list(options)
        return [rest.pop(self.below(len(rest))) for _ in range(count)]


def draw_uniform(*key: object) -> float:
    """A number in [0, 1) that belongs to the key; needs no generator, so a fork or a replay sees the same one."""
    digest = hashlib.sha256("/".join(str(part) for part in key).encode()).digest()
    return (int.from_bytes(digest[:8], "big") >> 11) * 2.0**-53


# Process-wide generators, lent to one environment at a time.
#
# Many packages of games draw from `random` or `numpy.random` themselves. Side by side, such games would change each
# other and the trainer. Here each has a state of its own, put in place while it is called and taken out again after.

STATE_BYTES = 624 * 4 + 4
"""Bytes of numpy's generator: 624 numbers, and how many of them were used."""
_LENT = RLock()
"""Held while the generators are lent: attempts may play in several threads."""


class PrivateRandom:
    """What one environment finds in the process-wide generators; putting it in place takes some 0.03 ms."""

    __slots__ = ("_state",)

    def __init__(self, seed: int) -> None:
        self._state: tuple[Any, Any] = random.Random(seed).getstate(), _seed_numpy(seed % 2**32)

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """Within, the process-wide generators are this environment's; after it, they are as they were before."""
        with _LENT:
            outside = _take()
            _set(self._state)
            try:
                yield
            finally:
                self._state = _take()
                _set(outside)

    def fork(self) -> PrivateRandom:
        """A copy that goes on from here by itself."""
        twin = PrivateRandom.__new__(PrivateRandom)
        twin._state = self._state
        return twin


@contextmanager
def undo_draws() -> Iterator[None]:
    """After it, the process-wide generators are as they were before."""
    with _LENT:
        before = _take()
        _set(before)
        try:
            yield
        finally:
            _take()
            _set(before)


def _take() -> tuple[Any, Any]:
    """The states; numpy's is to be set again before anything is drawn."""
    return random.getstate(), _take_numpy() if _is_memory_readable() else np.random.get_state()


def _set(states: tuple[Any, Any]) -> None:
    """Set the states, after they were taken."""
    random.setstate(states[0])
    if isinstance(states[1][0], str):
        np.random.set_state(states[1])
        return
    numbers, kept = states[1]
    memmove(_find_address(), numbers, STATE_BYTES)
    if kept is not None:
        np.random.set_state({**np.random.get_state(legacy=False), "has_gauss": 1, "gauss": kept})


def _take_numpy() -> tuple[bytes, float | None]:
    """numpy's numbers as they lie in memory, as its own functions take five times as long as a game's step.

    Normal draws are made in pairs, and the second is kept for the next time, where only drawing it finds it. After
    this none is kept, and the numbers may have moved on.
    """
    address = _find_address()
    numbers = string_at(address, STATE_BYTES)
    kept = float(np.random.standard_normal())
    if string_at(address, STATE_BYTES) == numbers:
        return numbers, kept
    np.random.standard_normal()
    return numbers, None


def _find_address() -> int:
    bits: Any = np.random.get_bit_generator()  # type: ignore[attr-defined]  # numpy's types leave it out
    if type(bits) is not MT19937:
        raise ConfigError(
            f"numpy's process-wide generator is a {type(bits).__name__}, and games that draw from it cannot be told "
            "apart; leave it as it is, without np.random.set_bit_generator"
        )
    return int(bits.ctypes.state_address)


def _seed_numpy(seed: int) -> Any:
    """The state of numpy's generator after a seed."""
    bits, numpy_random = _reuse_generator()
    numpy_random.seed(seed)
    return (
        (string_at(bits.ctypes.state_address, STATE_BYTES), None) if _is_memory_readable() else numpy_random.get_state()
    )


@cache
def _reuse_generator() -> tuple[Any, RandomState]:
    """A generator to seed: making one takes longer."""
    bits = MT19937(0)
    return bits, RandomState(bits)


@cache
def _is_memory_readable() -> bool:
    """Whether numpy's numbers lie in memory as expected."""
    bits: Any = MT19937(0)
    RandomState(bits).random_sample(5)
    state: Any = bits.state["state"]
    expected: bytes = state["key"].tobytes() + np.int32(state["pos"]).tobytes()
    return string_at(bits.ctypes.state_address, STATE_BYTES) == expected
