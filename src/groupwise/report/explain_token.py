"""Explaining the credit of one token: how it follows from that of its step, done a second time by hand."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import cast

import numpy as np

from groupwise.credit import DiscountedTokens, FirstTokens
from groupwise.data.credit import Credit, Derivation, OwnTokenTrace, TokenTrace, describe_mask
from groupwise.data.step_table import StepTable
from groupwise.data.token_table import TokenTable
from groupwise.methods.d3s import DualDownSampling
from groupwise.parts.algorithm import Algorithm
from groupwise.parts.part import name_of
from groupwise.parts.slots import Filter
from groupwise.report.explain import Explanation
from groupwise.system.errors import RecordError
from groupwise.system.text import describe_value

FORCED = "it was forced on the policy and is read like the prompt: it does not train"
WITHOUT_PART = "no token_credit: each token has the credit of its step"
NUM_NEIGHBOURS = 5
"""How many tokens before and after it are shown beside a token."""


@dataclass(frozen=True, kw_only=True)
class TokenMember:
    """A token that took part in giving another one its credit."""

    attempt: str | int
    """Id of its attempt."""
    index: int
    """Index of its step."""
    position: int
    """Its position in the response."""
    value: float
    """What was compared."""


@dataclass(frozen=True, kw_only=True)
class NeighbourToken:
    """A token of the response that stands near the explained one, or is it."""

    position: int
    """Its position in the response."""
    token: int
    """Its id."""
    text: str | None
    """Its text; None = nothing here can tell."""


@dataclass(frozen=True, kw_only=True)
class TokenExplanation:
    """How a sampled token came by its credit."""

    position: int
    """Its position in the response, from 0."""
    token: int
    """Its id."""
    logp: float | None
    """Its log-probability when it was sampled; None = not recorded."""
    entropy: float | None
    """The entropy of the distribution that it was drawn from; None = not recorded."""
    trains: bool
    """Whether it trains."""
    what: str
    """The part that made the number, in words."""
    value: float | None
    """The number, as computed; None = it does not train, and nothing reads its number."""
    by_hand: float | None
    """The number, derived again from the credit of its step; None = it does not train, it is simply the credit of its
    step, or it was not derived (`not_derived` says why)."""
    formula: str
    """The arithmetic, with the numbers in it."""
    members: tuple[TokenMember, ...] = ()
    """Other tokens that took part."""
    not_derived: str = ""
    """What of it was taken as it was computed, since nothing here can derive it again; empty = nothing."""
    lines: tuple[str, ...] = ()
    """What was worked out before the formula, one after the other, each with its numbers."""
    neighbours: tuple[NeighbourToken, ...] = ()
    """The token itself and those near it, in the order of the response; empty = nobody asked for them."""

    @property
    def gap(self) -> float:
        """Relative distance between the number as computed and as derived by hand; 0 if there is no second number."""
        if self.value is None or self.by_hand is None:
            return 0.0
        return abs(self.value - self.by_hand) / max(1.0, abs(self.value))


def explain_token(
    algorithm: Algorithm, table: StepTable, credit: Credit, tokens: TokenTable, *, step: int, position: int
) -> TokenExplanation:
    """Explain the credit of the token at a position of a step's response, given the credit of the table's steps."""
    if 0 <= position < tokens.num_forced(step):
        return _explain_forced(int(tokens.forced[step][position]), position)
    earned, token = credit.by_step(), tokens.find(step, position, table)
    own = float(earned.values[step])
    unsaid = TokenExplanation(
        position=position,
        token=int(tokens.token[token]),
        logp=_none_if_missing(tokens.logp[token]),
        entropy=_none_if_missing(tokens.entropy[token]),
        trains=True,
        what=WITHOUT_PART,
        value=own,
        by_hand=None,
        formula=f"{own:.6g}",
    )
    named = unsaid if algorithm.token_credit is None else replace(unsaid, what=name_of(algorithm.token_credit))
    dropping = find_filters_that_drop(algorithm, table, credit, step)
    if dropping:
        return _mask(named, f"{', '.join(dropping)} drops its step")
    if algorithm.token_credit is None:
        return named
    seen = algorithm.estimator_table(table)
    token_credit = algorithm.token_credit(seen, earned, tokens)
    if not token_credit.trains[token]:
        return _mask(named, describe_mask(token_credit, seen, earned, tokens, token) or "nothing reads its number")
    value, of_step = float(token_credit.values[token]), f"credit of its step: {own:.6g}"
    trace = token_credit.trace
    if not isinstance(trace, TokenTrace) and not hasattr(trace, "derive"):
        return replace(
            named,
            value=value,
            by_hand=None,
            formula=f"{value:.6g}",
            not_derived=f"the credit of {named.what}, whose trace {type(trace).__name__} has no derive",
            lines=(of_step,),
        )
    derivation, not_derived = _derive(seen, earned, tokens, token, trace)
    return replace(
        named,
        value=value,
        by_hand=float(derivation.value),
        formula=derivation.formula,
        members=_list_members(table, tokens, derivation),
        not_derived=not_derived,
        lines=(of_step, *derivation.lines),
    )


def find_largest_gap(
    explanation: Explanation, channels: Mapping[str, Explanation], token: TokenExplanation | None
) -> float | None:
    """Largest relative distance between a number of a step as computed and as derived by hand; None = none was."""
    gaps = [explained.largest_gap() for explained in (explanation, *channels.values())]
    gaps += [] if token is None or token.by_hand is None else [token.gap]
    return max((gap for gap in gaps if gap is not None), default=None)


def add_neighbours(
    explanation: TokenExplanation, ids: Sequence[int], texts: Sequence[str] | None = None
) -> TokenExplanation:
    """Say which tokens stand near the explained one, given the ids of its response and, where known, their texts."""
    first = max(explanation.position - NUM_NEIGHBOURS, 0)
    near = range(first, min(explanation.position + NUM_NEIGHBOURS + 1, len(ids)))
    return replace(
        explanation,
        neighbours=tuple(
            NeighbourToken(position=place, token=int(ids[place]), text=None if texts is None else texts[place])
            for place in near
        ),
    )


def _mask(explanation: TokenExplanation, reason: str) -> TokenExplanation:
    """The explanation of a token that does not train: why, and no number."""
    return replace(explanation, trains=False, value=None, by_hand=None, formula=f"it does not train: {reason}")


def _explain_forced(token: int, position: int) -> TokenExplanation:
    """Why a token that nobody sampled has no credit."""
    return TokenExplanation(
        position=position,
        token=token,
        logp=None,
        entropy=None,
        trains=False,
        what="a forced token",
        value=None,
        by_hand=None,
        formula=FORCED,
    )


def _derive(
    table: StepTable, credit: Credit, tokens: TokenTable, token: int, trace: TokenTrace | OwnTokenTrace
) -> tuple[Derivation, str]:
    """The number again, and what of it could not be derived."""
    own = float(credit.values[tokens.step[token]])
    if isinstance(trace, TokenTrace):
        weight = _derive_weight(trace.part, tokens, token)
        used = float(trace.weight[token]) if weight is None else float(weight)
        value = used * own
        words = f"the weights of {name_of(trace.part)}" if weight is None else ""
        lines = (f"what it has of that: {used:.6g}",)
        return Derivation(value=value, formula=f"{used:.6g} x {own:.6g} = {value:.6g}", lines=lines), words
    derivation = trace.derive(table, credit, tokens, token)
    if not isinstance(derivation, Derivation):
        raise RecordError(
            f"the trace {type(trace).__name__}: derive gave {describe_value(derivation)}, but a Derivation is needed"
        )
    return derivation, derivation.not_derived


def _derive_weight(part: object, tokens: TokenTable, token: int) -> Fraction | None:
    """What a token has of its step's credit, by hand; None for a part that is not known here."""
    of_step = [k for k, step in enumerate(tokens.step.tolist()) if step == tokens.step[token]]
    if isinstance(part, DiscountedTokens):
        return Fraction(part.gamma) ** (len(of_step) - 1 - of_step.index(token))
    return Fraction(1) if isinstance(part, FirstTokens | DualDownSampling) else None


def _list_members(table: StepTable, tokens: TokenTable, derivation: Derivation) -> tuple[TokenMember, ...]:
    return tuple(
        TokenMember(
            attempt=table.attempt_ids[table.attempt[tokens.step[token]]],
            index=int(table.index[tokens.step[token]]),
            position=int(tokens.position[token]) + tokens.num_forced(int(tokens.step[token])),
            value=float(value),
        )
        for token, value in derivation.members
    )


def _none_if_missing(value: float) -> float | None:
    return None if math.isnan(value) else float(value)


# Which steps of a table may not train, and which filter says so.


@dataclass(frozen=True, kw_only=True)
class DroppedStep:
    """A step that a filter dropped once it had seen its credit."""

    filter: str
    """The filter, in a few words."""
    task: str | int
    """Id of the step's task."""
    attempt: str | int
    """Id of its attempt."""
    index: int
    """Its index."""
    credit: float
    """Its credit, which it does not train on."""


def find_steps_dropped_by_credit(algorithm: Algorithm, table: StepTable, credit: Credit) -> list[DroppedStep]:
    """Every step that a filter drops which reads the credit, in the order of the filters and of the table."""
    seen, earned = algorithm.estimator_table(table), credit.by_step()
    return [
        DroppedStep(
            filter=name_of(part),
            task=table.task_ids[table.task[step]],
            attempt=table.attempt_ids[table.attempt[step]],
            index=int(table.index[step]),
            credit=float(earned.values[step]),
        )
        for part in algorithm.credit_filters
        for step in np.flatnonzero(~part(seen, earned)).tolist()
    ]


def find_filters_that_drop(algorithm: Algorithm, table: StepTable, credit: Credit, step: int) -> list[str]:
    """The filters that drop one step, each in a few words; with none it trains."""
    seen, earned = algorithm.estimator_table(table), credit.by_step()
    bare = replace(table, filters=())
    reading = [part for part in algorithm.credit_filters if not part(seen, earned)[step]]
    others = [cast(Filter, part) for part in algorithm.filters if not getattr(part, "reads_credit", False)]
    return [name_of(part) for part in (*(part for part in others if not part(bare)[step]), *reading)]
