"""Recorded rollouts, found again among the states of a listed world."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import numpy as np

from groupwise.data.segments import IntArray
from groupwise.lab.enumerated import EnumeratedWorld, RememberedState


def trace_rollout(
    world: EnumeratedWorld, *, keys: Sequence[Hashable], texts: Sequence[str] = (), actions: Sequence[str] = ()
) -> IntArray:
    """The listed state of each step of a recorded rollout.

    Args:
        world: the rollout's task, listed.
        keys: the recorded state key of each step; of an environment that has a choice, of `key = "situation"`.
        texts: what was seen at each step; asked for where the world remembers.
        actions: what was done at each step; the same.
    """
    done = actions if world.has_actions else [""] * len(actions)
    known = {name: code for code, name in enumerate(world.states)}
    codes = []
    for step, key in enumerate(keys):
        first = max(step - world.window, 0)
        past = tuple(zip(texts[first:step], done[first:step], strict=True))
        codes.append(known[RememberedState(key, past) if world.window else key])
    return np.array(codes, dtype=np.int64)
