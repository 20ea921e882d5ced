"""Credit: one number a step, whether the step was compared with anybody, and how the number came about.

Axes: N rows as handed in, S steps of the table.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, runtime_checkable

import numpy as np

from groupwise.core.segments import BoolArray, FloatArray, IntArray

if TYPE_CHECKING:
    from groupwise.core.step_table import StepTable


@dataclass(frozen=True, eq=False, kw_only=True)
class Comparison:
    """Trace of a comparison within groups: credit = (signal - baseline) / scale.

    Worked example: returns 1 and 0 in one group, ddof 0: signal [1, 0], label [0, 0], baseline [.5, .5], scale
    [.5, .5], values [1, -1].
    """

    values: FloatArray
    """Credit of each step (S)."""
    compared: BoolArray
    """Whether anybody else was in the step's group (S)."""
    signal: FloatArray
    """The number compared (S)."""
    label: IntArray
    """Group of each step (S); -1 = in none."""
    baseline: FloatArray
    """What was subtracted (S); NaN where there is no group."""
    scale: FloatArray
    """What it was divided by (S); NaN where there is no group."""
    part: object
    """The estimator that compared."""
    of: Trace | None = None
    """Where the signal is itself credit, its own trace."""
    divides_only: bool = False
    """Whether the group only divides credit: then `of` says with whom a step is compared, not this group."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Mixture:
    """Trace of a weighted sum: credit = sum of weight x credit over the terms."""

    values: FloatArray
    """Credit of each step (S)."""
    compared: BoolArray
    """Whether any term compared the step (S)."""
    weights: tuple[FloatArray, ...]
    """Weight of each term at each step (S); 0 where the term has nothing to say."""
    terms: tuple[Trace, ...]
    """Traces of the terms."""
    part: object
    """The estimator that weighed the terms."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Shared:
    """Trace of credit that a group shares: credit = the group's mean credit where it is shared, else the step's own."""

    values: FloatArray
    """Credit of each step (S)."""
    compared: BoolArray
    """As in the trace below (S)."""
    label: IntArray
    """Group of each step (S); -1 = the step keeps its own credit."""
    of: Trace
    """Trace of the credit that is shared."""
    part: object
    """The estimator that shared the credit."""


@dataclass(frozen=True, kw_only=True)
class Derivation:
    """How a number comes about, told by the trace of a part that groupwise does not know.

    Worked example: a step of a segment that earned 3 where the others' segments earned 1 on average, so credit 2:
    value 2.0, formula "3 - 1 = 2", members ((4, 3.0), (5, 3.0), (9, 1.0)).
    """

    value: float
    """The number, worked out again from what is named below, without reading it from the trace."""
    formula: str
    """The arithmetic, with the numbers in it."""
    members: tuple[tuple[int, float], ...] = ()
    """The steps of the table (or tokens of the token table) that took part, and what was compared of each."""
    terms: tuple[tuple[float, Trace], ...] = ()
    """Traces of the credit that the number was made of, each with its weight; they are explained in turn."""
    lines: tuple[str, ...] = ()
    """What was worked out before the formula, one after the other, each with its numbers."""
    not_derived: str = ""
    """What was taken as it was computed, because nothing can derive it again; empty = nothing."""


@runtime_checkable
class OwnTrace(Protocol):
    """A trace that derives its numbers itself, for an estimator whose credit is none of the three above.

    `explain` shows what it tells and holds the number against it.

    It may also have `meets_others(table)`: which steps are compared with a step of another rollout (S). Without it,
    nothing says which steps are compared only within their own rollout (`credit/own_rollout_only`).
    """

    @property
    def values(self) -> FloatArray:
        """Credit of each step (S)."""

    @property
    def compared(self) -> BoolArray:
        """Whether anybody else took part (S)."""

    @property
    def part(self) -> object:
        """The estimator."""

    def derive(self, table: StepTable, step: int) -> Derivation:
        """How one step of the table comes by its number: worked out again, in plain arithmetic."""


Trace = Comparison | Mixture | Shared | OwnTrace


@dataclass(frozen=True, eq=False, kw_only=True)
class Credit:
    """What a table's steps deserve, in the order of the rows handed in.

    Not compared is not the same as zero: a step nobody was compared with has `compared` False; a step that was exactly
    average has value 0 and `compared` True.
    """

    trace: Trace
    """How each number came about, in the table's own order of steps."""
    step_of_row: IntArray
    """The step that each row handed in belongs to (N)."""

    @classmethod
    def of(cls, table: StepTable, trace: Trace) -> Credit:
        """The credit that a trace of the table's sorted steps gives, handed back in the order of the table's rows."""
        return cls(trace=trace, step_of_row=table.step_of_row)

    @property
    def values(self) -> FloatArray:
        """Credit of each row (N)."""
        return self.trace.values[self.step_of_row]

    @property
    def compared(self) -> BoolArray:
        """Whether each row's step was compared with anybody (N)."""
        return self.trace.compared[self.step_of_row]

    def by_step(self) -> Credit:
        """The same credit, handed back in the table's own order of steps instead of that of the rows."""
        return Credit(trace=self.trace, step_of_row=np.arange(len(self.trace.values)))

    def __len__(self) -> int:
        return len(self.step_of_row)

    def __repr__(self) -> str:
        shown = np.array2string(self.values, threshold=8)
        return f"Credit({len(self)} rows, {int(np.sum(self.compared))} compared, values {shown})"
