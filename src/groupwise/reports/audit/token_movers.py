"""The tokens whose credit changes most when one recipe takes another's place."""

from __future__ import annotations

import heapq
from dataclasses import dataclass

import numpy as np

from groupwise.core.step_table import StepTable
from groupwise.core.token_table import TokenTable
from groupwise.reports.audit.token_comparison import ValuedTokens


@dataclass(frozen=True, kw_only=True)
class TokenMover:
    """A token whose credit changes much."""

    task: str | int
    """Id of its task (or group)."""
    attempt: str | int
    """Id of its attempt."""
    index: int
    """Index of its step."""
    position: int
    """Its position in the response, tokens that were forced on the policy counted."""
    token: int
    """Its id."""
    before: float
    """Credit under the first recipe."""
    after: float
    """Credit under the last recipe."""

    @property
    def rank(self) -> tuple[float, str, str, int, int]:
        """Where it stands among movers: the largest change first, equals by name."""
        return -abs(self.after - self.before), str(self.task), str(self.attempt), self.index, self.position


class TokenMoverTally:
    """Keeps the largest changes chunk by chunk, among tokens that both recipes train."""

    def __init__(self, num: int) -> None:
        self._num = num
        self._movers: list[TokenMover] = []

    def add(self, table: StepTable, tokens: TokenTable, before: ValuedTokens, after: ValuedTokens) -> None:
        """Look for movers in one chunk."""
        size = np.abs(np.where(before.trains & after.trains, after.values - before.values, 0.0))
        moved = np.flatnonzero(size)
        if len(moved) > self._num:
            edge = np.partition(size[moved], -self._num)[-self._num]
            moved = moved[size[moved] >= edge]  # ties at the edge stay in
        movers = self._movers + [
            _make_mover(table, tokens, token, float(before.values[token]), float(after.values[token]))
            for token in moved.tolist()
        ]
        self._movers = heapq.nsmallest(self._num, movers, key=lambda mover: mover.rank)

    def result(self) -> list[TokenMover]:
        """The largest changes, largest first."""
        return self._movers


def _make_mover(table: StepTable, tokens: TokenTable, token: int, before: float, after: float) -> TokenMover:
    step = int(tokens.step[token])
    return TokenMover(
        task=table.task_ids[table.task[step]],
        attempt=table.attempt_ids[table.attempt[step]],
        index=int(table.index[step]),
        position=int(tokens.position[token]) + tokens.num_forced(step),
        token=int(tokens.token[token]),
        before=before,
        after=after,
    )
