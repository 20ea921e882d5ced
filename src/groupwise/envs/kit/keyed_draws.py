"""Random draws from a key: the same on every machine and every Python version, and never from a shared generator.

Python promises to keep only the sequence of `Random.random()`; `choice`, `shuffle` and `sample` may change between
versions and would move the panels, so they are written out here.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from random import Random
from typing import TypeVar

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
