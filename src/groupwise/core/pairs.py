"""Pairs: which of two attempts at a task, or of two steps in one state, did better."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple, Protocol, runtime_checkable

if TYPE_CHECKING:
    from groupwise.core.step_table import StepTable


class Pair(NamedTuple):
    """One attempt, or one step of it, that a loss holds against another of its group.

    A pairing numbers attempts as the step table does; in `Totals` they are numbered as the update's trajectories.
    """

    winner: int
    """Number of the better attempt."""
    loser: int
    """Number of the worse attempt."""
    weight: float = 1.0
    """How much the pair counts beside the others; losses divide by the sum of all weights."""
    gap: float = 0.0
    """How much better the winner did, in units of what was compared."""
    winner_step: int | None = None
    """Index of the winner's step that is meant; None = the whole attempt."""
    loser_step: int | None = None
    """Index of the loser's step that is meant; None = the whole attempt."""

    @property
    def members(self) -> tuple[tuple[int, int | None], tuple[int, int | None]]:
        """Attempt and step of the winner, then of the loser."""
        return (self.winner, self.winner_step), (self.loser, self.loser_step)


@runtime_checkable
class PairReasons(Protocol):
    """A pairing that can say why two are a pair; reports ask it, and tell the two returns where it cannot."""

    def describe_pair(self, table: StepTable, pair: Pair) -> str:
        """Why the two are a pair, with the numbers that were compared."""


def compare_returns(table: StepTable, pair: Pair) -> str:
    """The returns of the two attempts, in words."""
    winner, loser = (table.episode_return[table.attempts.first[number]] for number in (pair.winner, pair.loser))
    return f"return {winner:.6g} against {loser:.6g}"


def differ(value: float, other: float) -> bool:
    """Whether two returns differ by more than rounding: rewards summed in another order miss by their last digit."""
    return not math.isclose(value, other, rel_tol=1e-9, abs_tol=1e-9)
