"""Seeds form one tree: run, update, task, attempt, step. Nothing draws from the clock."""

from __future__ import annotations

import hashlib


def seed_of(*path: str | int) -> int:
    """The seed at a path of the tree: 63 bits that depend on every name on the way and on nothing else.

    >>> seed_of(0, "update", 3, "kitchen-1", 2) == seed_of(0, "update", 3, "kitchen-1", 2)
    True
    >>> seed_of(0, "update", 3) != seed_of(0, "update", 4)
    True
    """
    # Type and length go along, so that ("a", "b") and ("ab",), or 1 and "1", are different paths.
    text = ""
    for name in path:
        text += f"{type(name).__name__}:{len(str(name))}:{name};"
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big") >> 1
