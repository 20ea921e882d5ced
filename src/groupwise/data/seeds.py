"""Seeds form one tree: run, update, task, rollout, step. No seed comes from the clock."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence


def seed_of(*path: str | int) -> int:
    """The seed at a path of the tree: 63 bits that depend only on the names of the path.

    >>> seed_of(0, "update", 3, "kitchen-1", 2) == seed_of(0, "update", 3, "kitchen-1", 2)
    True
    >>> seed_of(0, "update", 3) != seed_of(0, "update", 4)
    True
    """
    return seeds_of([path])[0]


def seeds_of(paths: Iterable[Sequence[str | int]]) -> list[int]:
    seeds = []
    for path in paths:
        text = ""
        for name in path:
            # With type and length, ("a", "b") and ("ab",), or 1 and "1", are different paths.
            text += f"{type(name).__name__}:{len(str(name))}:{name};"
        seeds.append(int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big") >> 1)
    return seeds
