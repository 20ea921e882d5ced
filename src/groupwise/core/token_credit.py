"""Token credit: a number a sampled token, whether the token trains, and how the number came about.

Axes: S steps of the table, K sampled tokens of all steps.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    from groupwise.core.credit import Credit, Derivation
    from groupwise.core.segments import BoolArray, FloatArray, IntArray
    from groupwise.core.step_table import StepTable
    from groupwise.core.token_table import TokenTable


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
