"""Credit: one number a step, whether the step was compared with anybody, and how the number came about.

Axes: N rows as handed in, S steps of the table.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, runtime_checkable

import numpy as np

from groupwise.data.segments import BoolArray, FloatArray, IntArray, Segments
from groupwise.data.step_table import StepTable

if TYPE_CHECKING:
    from groupwise.data.token_table import TokenTable


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
class WeightedSum:
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


Trace = Comparison | WeightedSum | Shared | OwnTrace


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


# Token credit: a number a sampled token, whether the token trains, and how the number came about.
#
# Axes: S steps of the table, K sampled tokens of all steps.


@dataclass(frozen=True, eq=False, kw_only=True)
class TokenTrace:
    """Trace of credit within steps: credit of a token = weight x credit of its step.

    Worked example: a step of credit 2 and two tokens, discounted by a half: weight [0.5, 1], values [1, 2].
    """

    weight: FloatArray
    """What each token has of its step's credit (K)."""
    part: object
    """The part that gave tokens their credit."""


class OwnTokenTrace(Protocol):
    """A trace that derives its numbers itself, for token credit that is no share of the step's.

    `explain --token N` asks it; without it, the report says that the number cannot be derived again.
    """

    def derive(self, table: StepTable, credit: Credit, tokens: TokenTable, token: int) -> Derivation:
        """How one token (an index into K) comes by its number: worked out again in plain arithmetic.

        `credit` is that of the table's steps, in the table's order. Members of the derivation are tokens.
        """


@runtime_checkable
class MaskReasons(Protocol):
    """A trace of token credit, or a part, that can say why a token does not train; `explain --token N` asks it."""

    def describe_mask(self, table: StepTable, credit: Credit, tokens: TokenTable, token: int) -> str:
        """Why one token (an index into K) does not train, in words that follow a colon."""


@dataclass(frozen=True, eq=False, kw_only=True)
class TokenCredit:
    """What the sampled tokens of a table deserve, and which of them train, in the order of the token table.

    A token that does not train leaves the loss and every denominator; its value, be it NaN, is never read. A step of
    which no token trains does not train.
    """

    values: FloatArray
    """Credit of each token (K)."""
    trains: BoolArray
    """Whether each token trains (K)."""
    trace: TokenTrace | OwnTokenTrace
    """How each number came about."""
    span: IntArray | None = None
    """Span of its response that each token belongs to (K), numbered by the part, for losses that take ratios by span; a
    part that gives it declares `gives_spans = True`. None = it tells none."""


def describe_mask(token_credit: TokenCredit, table: StepTable, credit: Credit, tokens: TokenTable, token: int) -> str:
    """Why a token does not train, as its trace or the trace's part says; empty = neither does."""
    trace = token_credit.trace
    for owner in (trace, getattr(trace, "part", None)):
        if isinstance(owner, MaskReasons):
            return owner.describe_mask(table, credit, tokens, token)
    return ""


# Tasks at which nobody earned anything: what credit there is there comes from penalties, or from the method itself.
#
# Axis: S steps.


def find_unearned(table: StepTable) -> BoolArray:
    """Whether each step belongs to a task at which nobody earned anything (S).

    What was earned is the column `accuracy`, what the judges paid, where the table has it; else rewards and outcomes.
    """
    if "accuracy" in table.extra:
        earned = np.abs(np.asarray(table.extra["accuracy"], dtype=np.float64))
    else:
        earned = np.abs(table.reward) + np.abs(table.episode_return)
    return np.asarray((table.tasks.sum(earned) == 0)[table.task])


# Axes: S steps, M groups.


def find_own_rollout_only(table: StepTable, trace: Trace) -> BoolArray | None:
    """Which compared steps have no other rollout in any of their groups (S); None if a trace does not say.

    Worked example: two rollouts visit the states a b b and a c d. Both steps at b are compared, each with the other
    one alone, so both are marked. The steps at a are compared with each other, across rollouts: they are not.
    """
    meets = meets_others(table, trace)
    return None if meets is None else trace.compared & ~meets


def meets_others(table: StepTable, trace: Trace) -> BoolArray | None:
    """Which steps some comparison puts beside a step of another rollout (S); None if a trace does not say."""
    if isinstance(trace, Comparison):
        if trace.of is not None and trace.divides_only:
            return meets_others(table, trace.of)
        return trace.compared & spans_rollouts(table, trace.label)
    if isinstance(trace, WeightedSum):
        of_terms = [meets_others(table, term) for term in trace.terms]
        known = [meets for meets in of_terms if meets is not None]
        meets = np.any([np.zeros(len(table), dtype=np.bool_), *known], axis=0)
        return meets if len(known) == len(of_terms) or meets[trace.compared].all() else None
    if isinstance(trace, Shared):
        own = meets_others(table, trace.of)
        return None if own is None else own | spans_rollouts(table, trace.label)
    tell = getattr(trace, "meets_others", None)
    return None if tell is None else tell(table)


def spans_rollouts(table: StepTable, label: IntArray) -> BoolArray:
    """Which steps are in a group that holds steps of two or more rollouts (S)."""
    groups = Segments.of(label)
    is_shared_M = ~groups.is_constant(table.attempt.astype(np.float64))
    return np.append(is_shared_M, False)[groups.label]
