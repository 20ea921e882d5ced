"""Advantages: one number per step, whether the step was compared with other steps, and how the number was computed.

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
    """Trace of a comparison within groups: advantage = (signal - baseline) / scale.

    Worked example: returns 1 and 0 in one group, ddof 0: signal [1, 0], label [0, 0], baseline [.5, .5], scale
    [.5, .5], values [1, -1].
    """

    values: FloatArray
    """Advantage of each step (S)."""
    compared: BoolArray
    """Whether the step's group has other members (S)."""
    signal: FloatArray
    """The number that is compared (S)."""
    label: IntArray
    """Group of each step (S); -1 = in none."""
    baseline: FloatArray
    """What was subtracted (S); NaN for steps in no group."""
    scale: FloatArray
    """What it was divided by (S); NaN for steps in no group."""
    part: object
    """The estimator that made the comparison."""
    of: Trace | None = None
    """The trace of the signal, if the signal is itself an advantage."""
    divides_only: bool = False
    """Whether the group only divides advantages. Then `of` says which steps are compared, not this group."""


@dataclass(frozen=True, eq=False, kw_only=True)
class WeightedSum:
    """Trace of a weighted sum: advantage = sum of weight x advantage over the terms."""

    values: FloatArray
    """Credit of each step (S)."""
    compared: BoolArray
    """Whether any term compared the step (S)."""
    weights: tuple[FloatArray, ...]
    """Weight of each term at each step (S); 0 where the term did not compare the step."""
    terms: tuple[Trace, ...]
    """The traces of the terms."""
    part: object
    """The estimator that weights the terms."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Shared:
    """Trace of a shared advantage: the mean advantage of the step's group, or the step's own if it is in no group."""

    values: FloatArray
    """Credit of each step (S)."""
    compared: BoolArray
    """The same as in `of` (S)."""
    label: IntArray
    """Group of each step (S); -1 = the step keeps its own advantage."""
    of: Trace
    """Trace of the advantage that is shared."""
    part: object
    """The estimator that shares the advantage."""


@dataclass(frozen=True, kw_only=True)
class Derivation:
    """How a number was computed, as told by the trace of a part that groupwise does not know.

    Worked example: a step's segment got the reward 3, the other segments got 1 on average, so the advantage is 2:
    value 2.0, formula "3 - 1 = 2", members ((4, 3.0), (5, 3.0), (9, 1.0)).
    """

    value: float
    """The number, computed again from the fields below, not read from the trace."""
    formula: str
    """The arithmetic, with the numbers in it."""
    members: tuple[tuple[int, float], ...] = ()
    """The steps of the table (or tokens of the token table) that took part, each with the number that was compared."""
    terms: tuple[tuple[float, Trace], ...] = ()
    """Traces of the advantages that the number was made of, each with its weight; these are explained next."""
    lines: tuple[str, ...] = ()
    """The computations before the formula, in order, each with its numbers."""
    not_derived: str = ""
    """What was not computed again, because nothing can derive it; empty = nothing."""


@runtime_checkable
class OwnTrace(Protocol):
    """A trace that derives its numbers itself, for an estimator that is none of the three above.

    `explain` shows the derivation and compares its number with the recorded one. The trace may also have
    `meets_others(table)`: which steps are compared with a step of another rollout (S). Without it, the metric
    `advantage/own_rollout_only` is not known.
    """

    @property
    def values(self) -> FloatArray:
        """Advantage of each step (S)."""

    @property
    def compared(self) -> BoolArray:
        """Whether each step was compared with another step (S)."""

    @property
    def part(self) -> object:
        """The estimator."""

    def derive(self, table: StepTable, step: int) -> Derivation:
        """Compute the number of one step of the table again, in plain arithmetic."""


Trace = Comparison | WeightedSum | Shared | OwnTrace


@dataclass(frozen=True, eq=False, kw_only=True)
class Credit:
    """The advantages of a table's steps, in the order of the input rows.

    Not compared is not the same as zero. The only member of a group has `compared` False; a step that is exactly
    average has value 0 and `compared` True.
    """

    trace: Trace
    """How each number was computed, in the table's own order of steps."""
    step_of_row: IntArray
    """The step of each input row (N)."""

    @classmethod
    def of(cls, table: StepTable, trace: Trace) -> Credit:
        return cls(trace=trace, step_of_row=table.step_of_row)

    @property
    def values(self) -> FloatArray:
        """Advantage of each row (N)."""
        return self.trace.values[self.step_of_row]

    @property
    def compared(self) -> BoolArray:
        """Whether each row's step was compared with another step (N)."""
        return self.trace.compared[self.step_of_row]

    def by_step(self) -> Credit:
        """The same numbers in the table's own order of steps."""
        return Credit(trace=self.trace, step_of_row=np.arange(len(self.trace.values)))

    def __len__(self) -> int:
        return len(self.step_of_row)

    def __repr__(self) -> str:
        shown = np.array2string(self.values, threshold=8)
        return f"Credit({len(self)} rows, {int(np.sum(self.compared))} compared, values {shown})"


# Token credit: one advantage per sampled token, whether the token trains, and how the number was computed.
#
# Axes: S steps of the table, K sampled tokens of all steps.


@dataclass(frozen=True, eq=False, kw_only=True)
class TokenTrace:
    """Trace of credit within steps: advantage of a token = weight x advantage of its step.

    Worked example: a step with advantage 2 and two tokens, discounted by a half: weight [0.5, 1], values [1, 2].
    """

    weight: FloatArray
    """The factor of each token (K)."""
    part: object
    """The part that computed the token credit."""


class OwnTokenTrace(Protocol):
    """A trace that derives its numbers itself, for token credit that is no multiple of the step's advantage.

    `explain --token N` uses it. Without it, the report says that the number cannot be derived again.
    """

    def derive(self, table: StepTable, credit: Credit, tokens: TokenTable, token: int) -> Derivation:
        """Compute the number of one token (an index into K) again, in plain arithmetic.

        `credit` is in the table's order of steps. Members of the derivation are tokens.
        """


@runtime_checkable
class MaskReasons(Protocol):
    """A trace of token credit, or a part, that can say why a token does not train. `explain --token N` uses it."""

    def describe_mask(self, table: StepTable, credit: Credit, tokens: TokenTable, token: int) -> str:
        """Why one token (an index into K) does not train, in words that can follow a colon."""


@dataclass(frozen=True, eq=False, kw_only=True)
class TokenCredit:
    """The advantages of the sampled tokens of a table, and which of them train, in the order of the token table.

    A token that does not train is in no loss and no denominator. Its value, even NaN, is never read. A step without
    trained tokens does not train.
    """

    values: FloatArray
    """Advantage of each token (K)."""
    trains: BoolArray
    """Whether each token trains (K)."""
    trace: TokenTrace | OwnTokenTrace
    """How each number was computed."""
    span: IntArray | None = None
    """Span of the response that each token belongs to (K), numbered by the part, for losses with one ratio per span.
    A part that gives spans declares `gives_spans = True`. None = no spans."""


def describe_mask(token_credit: TokenCredit, table: StepTable, credit: Credit, tokens: TokenTable, token: int) -> str:
    """Why a token does not train, as its trace or the trace's part says; empty = neither says it."""
    trace = token_credit.trace
    for owner in (trace, getattr(trace, "part", None)):
        if isinstance(owner, MaskReasons):
            return owner.describe_mask(table, credit, tokens, token)
    return ""


# Tasks at which no rollout got a reward: their advantages come from penalties, or from the method itself.
#
# Axis: S steps.


def find_unearned(table: StepTable) -> BoolArray:
    """Whether each step belongs to a task at which no rollout got a reward (S).

    If the table has the column `accuracy`, it counts as the reward. Else rewards and final scores count.
    """
    if "accuracy" in table.extra:
        earned = np.abs(np.asarray(table.extra["accuracy"], dtype=np.float64))
    else:
        earned = np.abs(table.reward) + np.abs(table.episode_return)
    return np.asarray((table.tasks.sum(earned) == 0)[table.task])


# Axes: S steps, M groups.


def find_own_rollout_only(table: StepTable, trace: Trace) -> BoolArray | None:
    """Which compared steps have no other rollout in any of their groups (S); None if a trace does not say it.

    Worked example: two rollouts visit the states a b b and a c d. The two steps at b are compared only with each other,
    within one rollout, so both are marked. The steps at a are compared across rollouts, so they are not marked.
    """
    meets = meets_others(table, trace)
    return None if meets is None else trace.compared & ~meets


def meets_others(table: StepTable, trace: Trace) -> BoolArray | None:
    """Which steps are compared with a step of another rollout (S); None if a trace does not say it."""
    if isinstance(trace, Comparison):
        if trace.of is not None and trace.divides_only:
            return meets_others(table, trace.of)
        return trace.compared & spans_rollouts(table, trace.label)
    if isinstance(trace, WeightedSum):
        meets, all_known = np.zeros(len(table), dtype=np.bool_), True
        for term in trace.terms:
            of_term = meets_others(table, term)
            if of_term is None:
                all_known = False
            else:
                meets = meets | of_term
        return meets if all_known or meets[trace.compared].all() else None
    if isinstance(trace, Shared):
        own = meets_others(table, trace.of)
        return None if own is None else own | spans_rollouts(table, trace.label)
    ask = getattr(trace, "meets_others", None)
    return None if ask is None else ask(table)


def spans_rollouts(table: StepTable, label: IntArray) -> BoolArray:
    """Which steps are in a group with steps of two or more rollouts (S)."""
    groups = Segments.of(label)
    is_shared_M = ~groups.is_constant(table.rollout.astype(np.float64))
    return np.append(is_shared_M, False)[groups.label]
