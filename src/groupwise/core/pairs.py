"""Pairs: which of two attempts at a task did better."""

from __future__ import annotations

from typing import NamedTuple


class Pair(NamedTuple):
    """One attempt that a loss holds against another of its group.

    A pairing numbers attempts as the step table does; in `Totals` they are numbered as the update's trajectories.
    """

    winner: int
    """Number of the better attempt."""
    loser: int
    """Number of the worse attempt."""
    weight: float = 1.0
    """How much the pair counts beside the others; losses divide by the sum of all weights."""
