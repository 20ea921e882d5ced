"""The token table: the sampled tokens of a step table as columns, in the order of the table's steps.

Axes: N input rows, S steps of the table, K sampled tokens of all steps.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain
from typing import Any

import numpy as np

from groupwise.data.records import Trajectory
from groupwise.data.segments import FloatArray, IntArray
from groupwise.data.step_table import StepTable
from groupwise.system.errors import RecordError

RECORDED = {"logp": "log-probs", "entropy": "entropies"}
"""Columns that not every engine records, and their names in messages."""
KEYS = {"logp": "logp_behaviour", "entropy": "entropy"}
"""Their keys in rows."""


@dataclass(frozen=True, eq=False, kw_only=True)
class TokenTable:
    """Every sampled token of a step table, step by step, in the order in which they were sampled.

    Forced tokens are not among them; they are read like the prompt.

    Worked example: two steps that sampled (5, 9) and (7,), with log-probs and without entropies.

    >>> table = StepTable.from_columns(task=["t", "t"], rollout=[0, 1], step=[0, 0], reward=[1.0, 0.0])
    >>> rows = [
    ...     {"response_ids": [5, 9], "logp_behaviour": [-0.1, -2.0]}, {"response_ids": [7], "logp_behaviour": [-1.0]}
    ... ]
    >>> tokens = TokenTable.from_rows(table, rows)
    >>> tokens.row.tolist(), tokens.position.tolist(), tokens.token.tolist(), tokens.logp.tolist()
    ([0, 0, 1], [0, 1, 0], [5, 9, 7], [-0.1, -2.0, -1.0])
    """

    row: IntArray
    """Step of each token (K), as the table sorts them; ascending."""
    position: IntArray
    """Position of each token among the sampled tokens of its step (K), from 0."""
    token: IntArray
    """Token id (K)."""
    logp: FloatArray
    """Log-probability of each token when it was sampled (K); NaN = not recorded."""
    entropy: FloatArray
    """Entropy of the distribution that each token was sampled from (K); NaN = not recorded."""
    first_of_row: IntArray
    """Where the tokens of each input row begin (N)."""
    num_of_row: IntArray
    """How many tokens each input row has (N)."""
    forced: Mapping[int, Sequence[int]] = field(default_factory=dict)
    """Ids of the forced tokens at the beginning of a response, by step; most steps have none."""

    @classmethod
    def from_trajectories(cls, table: StepTable, trajectories: Sequence[Trajectory]) -> TokenTable:
        """The tokens of the trajectories that a table was made from (`StepTable.from_trajectories`)."""
        steps = [step for trajectory in trajectories for step in trajectory.steps]
        return cls._of(
            table,
            ids=[step.response_ids for step in steps],
            logp=[step.logp_behaviour for step in steps],
            entropy=[step.entropy for step in steps],
            num_forced=[step.forced for step in steps],
        )

    @classmethod
    def from_rows(cls, table: StepTable, rows: Sequence[Mapping[str, Any]]) -> TokenTable:
        """The tokens of the rows that a table was made from, of a journal or a rollouts file."""
        return cls._of(
            table,
            ids=[row.get("response_ids") or () for row in rows],
            logp=[row.get("logp_behaviour") or () for row in rows],
            entropy=[row.get("entropy") or () for row in rows],
            num_forced=[int(row.get("forced") or 0) for row in rows],
            segment=[int(row.get("segment") or 0) for row in rows],
        )

    @classmethod
    def _of(
        cls,
        table: StepTable,
        *,
        ids: Sequence[Sequence[int]],
        logp: Sequence[Sequence[float]],
        entropy: Sequence[Sequence[float]],
        num_forced: Sequence[int],
        segment: Sequence[int] | None = None,
    ) -> TokenTable:
        if len(ids) != len(table.step_of_row):
            raise RecordError(
                f"the tokens have {len(ids)} rows, but the step table has {len(table.step_of_row)}; give one row of "
                "tokens per row of the table"
            )
        forced: dict[int, Sequence[int]] = {}
        if any(num_forced):
            of_row = zip(table.step_of_row.tolist(), ids, num_forced, strict=True)
            forced = {step: ids_of_row[:num] for step, ids_of_row, num in of_row if num}
            ids = [values[num:] for values, num in zip(ids, num_forced, strict=True)]
            logp, entropy = (
                [values[num:] for values, num in zip(column, num_forced, strict=True)] for column in (logp, entropy)
            )
        # Rows of one step are in the order of their segments.
        order = np.lexsort((np.zeros(len(ids)) if segment is None else np.asarray(segment), table.step_of_row))
        length = np.fromiter(map(len, ids), np.int64, count=len(ids))
        sorted_length = length[order]
        first = np.cumsum(sorted_length) - sorted_length
        first_of_row = np.empty_like(first)
        first_of_row[order] = first
        step = np.repeat(table.step_of_row[order], sorted_length)
        first_of_step = np.searchsorted(step, np.arange(len(table)))
        rows = order.tolist()
        return cls(
            row=step,
            position=np.arange(len(step)) - first_of_step[step],
            token=np.fromiter(chain.from_iterable(ids[row] for row in rows), np.int64, count=len(step)),
            logp=_numbers(logp, rows, sorted_length),
            entropy=_numbers(entropy, rows, sorted_length),
            first_of_row=first_of_row,
            num_of_row=length,
            forced=forced,
        )

    def __len__(self) -> int:
        return len(self.row)

    @cached_property
    def step_length(self) -> IntArray:
        """How many tokens the step of each token has (K)."""
        return np.bincount(self.row)[self.row] if len(self) else np.zeros(0, dtype=np.int64)

    def find_tokens(self, number: int) -> slice:
        first = int(self.first_of_row[number])
        return slice(first, first + int(self.num_of_row[number]))

    def column(self, name: str, table: StepTable) -> FloatArray:
        """The column `logp` or `entropy` (K); an error names the first step that lacks it."""
        column: FloatArray = getattr(self, name)
        unknown = np.flatnonzero(np.isnan(column))
        if len(unknown):
            raise RecordError(
                f"{table.describe_step(int(self.row[unknown[0]]))}: this method reads the {RECORDED[name]} of sampled "
                f"tokens ({KEYS[name]}), but they were not recorded; use an engine that reports them"
            )
        return column

    def num_forced(self, step: int) -> int:
        """How many tokens of a step's response were forced; the sampled ones follow them."""
        return len(self.forced.get(step, ()))

    def response(self, step: int) -> list[int]:
        """Ids of the tokens of a step's response, forced ones first."""
        return [*map(int, self.forced.get(step, ())), *self.token[self.row == step].tolist()]

    def find(self, step: int, position: int, table: StepTable) -> int:
        """The index (into K) of the token at a position of a step's response, where forced tokens count."""
        first = self.num_forced(step)
        places = np.flatnonzero((self.row == step) & (self.position == position - first))
        if not len(places):
            num = int((self.row == step).sum())
            forced = f", the first {first} of them given, not sampled" if first else ""
            range_words = (
                f"its tokens run from 0 to {first + num - 1}{forced}" if num else "no sampled token of it was recorded"
            )
            raise RecordError(f"{table.describe_step(step)} has no token {position}; {range_words}")
        return int(places[0])


def _numbers(column: Sequence[Sequence[float]], rows: Sequence[int], length: IntArray) -> FloatArray:
    """A column with one number per token, rows in the given order; NaN for rows that recorded none."""
    listed = (
        column[row] if len(column[row]) else [np.nan] * num for row, num in zip(rows, length.tolist(), strict=True)
    )
    return np.fromiter(chain.from_iterable(listed), np.float64, count=int(length.sum()))
