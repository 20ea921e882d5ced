"""The explanation of one step: its advantage in every channel, one token, its pairs, and the filters that drop it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from fractions import Fraction
from typing import Any, cast

import numpy as np

from groupwise.credit import DiscountedTokens, FirstTokens
from groupwise.data.credit import Credit, Derivation, OwnTokenTrace, TokenTrace, describe_mask
from groupwise.data.samples import Pair, PairReasons, compare_returns
from groupwise.data.segments import BoolArray
from groupwise.data.step_table import StepTable
from groupwise.data.token_table import TokenTable
from groupwise.methods.d3s import DualDownSampling
from groupwise.parts.algorithm import Algorithm
from groupwise.parts.part import name_of
from groupwise.parts.slots import Filter
from groupwise.report.explain import Explanation, explain_channels, explain_step, find_step
from groupwise.system.errors import RecordError
from groupwise.system.text import describe_value

AGREEMENT = 1e-9
"""Numbers with a smaller relative distance count as equal."""


@dataclass(frozen=True, eq=False, kw_only=True)
class ExplainedStep:
    """The explanation of a step."""

    algorithm: Algorithm
    table: StepTable
    """The steps that it was compared with."""
    credit: Credit
    position: int
    explanation: Explanation
    channels: Mapping[str, Explanation]
    token: TokenExplanation | None
    pairs: tuple[ExplainedPair, ...]

    @property
    def gap(self) -> float | None:
        """Largest relative distance between a computed and a derived number; None = none was derived."""
        gaps = [explained.largest_gap() for explained in (self.explanation, *self.channels.values())]
        gaps += [] if self.token is None or self.token.by_hand is None else [self.token.gap]
        return max((gap for gap in gaps if gap is not None), default=None)

    @property
    def agrees(self) -> bool:
        return (self.gap or 0.0) <= AGREEMENT

    def as_json(self) -> dict[str, Any]:
        """Everything as plain data, without keys that do not apply."""
        data = asdict(self.explanation) | {"largest_gap": self.gap}
        if self.channels:
            data["channels"] = {name: asdict(explanation) for name, explanation in self.channels.items()}
        if self.token is not None:
            data["token"] = asdict(self.token)
        if self.algorithm.pairing is not None:
            data["pairs"] = [asdict(pair) for pair in self.pairs]
        if self.algorithm.credit_filters:
            dropped = find_steps_dropped_by_credit(self.algorithm, self.table, self.credit)
            data["dropped_by_credit"] = [asdict(step) for step in dropped]
        return data


def needs_all_tasks(algorithm: Algorithm) -> bool:
    """Whether an explanation needs steps of other tasks."""
    return bool(algorithm.credit_filters) or any(part.mixes_tasks for part in algorithm.parts())


def explain_whole_step(
    algorithm: Algorithm,
    table: StepTable,
    credit: Credit,
    *,
    task: str | int,
    rollout: str | int,
    step: int,
    token: int | None = None,
    rows: Sequence[Mapping[str, Any]] = (),
    cut: Callable[[Sequence[int]], Sequence[str] | None] | None = None,
) -> ExplainedStep:
    """Explain a step of a table as the algorithm's estimator sees it.

    To explain the token at position `token` too, `rows` must have the recorded tokens. `cut` returns the texts of a
    response's tokens.
    """
    position = find_step(table, task=task, rollout=rollout, step=step)
    of_token = None
    if token is not None:
        tokens = TokenTable.from_rows(table, rows)
        of_token = explain_token(algorithm, table, credit, tokens, step=position, position=token)
        ids = tokens.response(position)
        of_token = add_neighbours(of_token, ids, cut(ids) if cut else None)
    return ExplainedStep(
        algorithm=algorithm,
        table=table,
        credit=credit,
        position=position,
        explanation=explain_step(table, credit, task=task, rollout=rollout, step=step),
        channels=explain_channels(table, algorithm, position),
        token=of_token,
        pairs=tuple(choose_pairs(explain_pairs(algorithm, table, credit), task=task, rollout=rollout, step=step)),
    )


# One token: its advantage, derived again from that of its step.

NUM_NEIGHBOURS = 5
"""How many tokens before and after a token are shown."""


@dataclass(frozen=True, kw_only=True)
class TokenMember:
    """A token that another token was compared with."""

    rollout: str | int
    step: int
    position: int
    value: float


@dataclass(frozen=True, kw_only=True)
class NeighbourToken:
    """A token near the explained one, or itself."""

    position: int
    token: int
    text: str | None
    """Its text; None = unknown."""


@dataclass(frozen=True, kw_only=True)
class TokenExplanation:
    """How a sampled token gets its advantage."""

    position: int
    """In the response, from 0."""
    token: int
    logp: float | None
    """Its log-probability when it was sampled; None = not recorded."""
    entropy: float | None
    """The entropy of its sampling distribution; None = not recorded."""
    trains: bool
    what: str
    """The part that computed the number, in words."""
    value: float | None
    """The computed number; None = it does not train."""
    by_hand: float | None
    """The number, derived again from the advantage of its step; None = it does not train, has the advantage of its
    step, or cannot be derived (`not_derived` says why)."""
    formula: str
    members: tuple[TokenMember, ...] = ()
    not_derived: str = ""
    """What was taken as computed, because it cannot be derived again here; empty = nothing."""
    lines: tuple[str, ...] = ()
    neighbours: tuple[NeighbourToken, ...] = ()
    """The token and those near it, in the order of the response; empty = not asked for."""

    @property
    def gap(self) -> float:
        """Relative distance between the computed and the derived number; 0 if there is no derived number."""
        if self.value is None or self.by_hand is None:
            return 0.0
        return abs(self.value - self.by_hand) / max(1.0, abs(self.value))


def explain_token(
    algorithm: Algorithm, table: StepTable, credit: Credit, tokens: TokenTable, *, step: int, position: int
) -> TokenExplanation:
    if 0 <= position < tokens.num_forced(step):
        return TokenExplanation(
            position=position,
            token=int(tokens.forced[step][position]),
            logp=None,
            entropy=None,
            trains=False,
            what="a forced token",
            value=None,
            by_hand=None,
            formula="it was forced on the policy and is read like the prompt: it does not train",
        )
    earned, token = credit.by_step(), tokens.find(step, position, table)
    own = float(earned.values[step])
    unsaid = TokenExplanation(
        position=position,
        token=int(tokens.token[token]),
        logp=_none_if_missing(tokens.logp[token]),
        entropy=_none_if_missing(tokens.entropy[token]),
        trains=True,
        what="no token_credit: each token has the advantage of its step",
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
    value, of_step = float(token_credit.values[token]), f"advantage of its step: {own:.6g}"
    trace = token_credit.trace
    if not isinstance(trace, TokenTrace) and not hasattr(trace, "derive"):
        return replace(
            named,
            value=value,
            by_hand=None,
            formula=f"{value:.6g}",
            not_derived=f"the advantage of {named.what}, whose trace {type(trace).__name__} has no derive",
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


def add_neighbours(
    explanation: TokenExplanation, ids: Sequence[int], texts: Sequence[str] | None = None
) -> TokenExplanation:
    """Add the tokens near the explained one, given the ids of its response and, if known, their texts."""
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
    """The explanation of a token that does not train: the reason, without a number."""
    return replace(explanation, trains=False, value=None, by_hand=None, formula=f"it does not train: {reason}")


def _derive(
    table: StepTable, credit: Credit, tokens: TokenTable, token: int, trace: TokenTrace | OwnTokenTrace
) -> tuple[Derivation, str]:
    """The number, derived again, and what could not be derived."""
    own = float(credit.values[tokens.row[token]])
    if isinstance(trace, TokenTrace):
        weight = _derive_weight(trace.part, tokens, token)
        used = float(trace.weight[token]) if weight is None else float(weight)
        value = used * own
        words = f"the weights of {name_of(trace.part)}" if weight is None else ""
        lines = (f"its weight: {used:.6g}",)
        return Derivation(value=value, formula=f"{used:.6g} x {own:.6g} = {value:.6g}", lines=lines), words
    derivation = trace.derive(table, credit, tokens, token)
    if not isinstance(derivation, Derivation):
        raise RecordError(
            f"the trace {type(trace).__name__}: derive returned {describe_value(derivation)}; expected a Derivation"
        )
    return derivation, derivation.not_derived


def _derive_weight(part: object, tokens: TokenTable, token: int) -> Fraction | None:
    """A token's weight, derived again; None for an unknown part."""
    of_step = [k for k, step in enumerate(tokens.row.tolist()) if step == tokens.row[token]]
    if isinstance(part, DiscountedTokens):
        return Fraction(part.gamma) ** (len(of_step) - 1 - of_step.index(token))
    return Fraction(1) if isinstance(part, FirstTokens | DualDownSampling) else None


def _list_members(table: StepTable, tokens: TokenTable, derivation: Derivation) -> tuple[TokenMember, ...]:
    return tuple(
        TokenMember(
            rollout=table.rollout_ids[table.rollout[tokens.row[token]]],
            step=int(table.step[tokens.row[token]]),
            position=int(tokens.position[token]) + tokens.num_forced(int(tokens.row[token])),
            value=float(value),
        )
        for token, value in derivation.members
    )


def _none_if_missing(value: float) -> float | None:
    return None if math.isnan(value) else float(value)


# Pairs: which rollouts or steps a loss compares, their margin, and why.


@dataclass(frozen=True, kw_only=True)
class ExplainedPair:
    """Two rollouts of a task, or one step of each, that a loss compares."""

    task: str | int
    winner: str | int
    loser: str | int
    winner_step: int | None
    """Index of the winner's step; None = the whole rollout."""
    loser_step: int | None
    """Index of the loser's step; None = the whole rollout."""
    gap: float
    """The margin: how much better the winner is, in units of the compared value."""
    weight: float
    why: str

    @property
    def sides(self) -> tuple[str, str]:
        """Winner and loser in words."""
        sides = ((self.winner, self.winner_step), (self.loser, self.loser_step))
        first, second = (f"rollout {name}" + ("" if step is None else f", step {step}") for name, step in sides)
        return first, second

    def describe(self) -> str:
        first, second = self.sides
        winner = first if self.winner_step is None else f"{first},"
        return f"{winner} over {second}: {self.why}; margin {self.gap:.6g}, weight {self.weight:.6g}"


def explain_pairs(algorithm: Algorithm, table: StepTable, credit: Credit) -> list[ExplainedPair]:
    """Every pair of a table, in the order of the pairing."""
    if algorithm.pairing is None:
        return []
    keep = algorithm.keep(table, credit)
    trained = _list_trained(table, keep)
    pairs = [pair for pair in algorithm.find_pairs(table, keep) if trained.issuperset(pair.members)]
    return [_explain_pair(algorithm.pairing, table, pair) for pair in pairs]


def choose_pairs(
    pairs: Iterable[ExplainedPair], *, task: str | int, rollout: str | int, step: int | None = None
) -> list[ExplainedPair]:
    """The pairs of a rollout; with `step`, only those of the whole rollout or of that step."""
    chosen = []
    for pair in pairs:
        sides = ((pair.winner, pair.winner_step), (pair.loser, pair.loser_step))
        if str(pair.task) == str(task) and any(
            str(name) == str(rollout) and (step is None or index is None or index == step) for name, index in sides
        ):
            chosen.append(pair)
    return chosen


def _list_trained(table: StepTable, keep: BoolArray) -> set[tuple[int, int | None]]:
    """The rollouts and steps that train. The loss leaves out a pair if a member sampled no token."""
    steps = table.step_of_row[keep]
    steps = steps[table.tokens[steps] > 0]
    rollouts = table.rollout[steps].tolist()
    return {*zip(rollouts, table.step[steps].tolist(), strict=True), *((rollout, None) for rollout in rollouts)}


def _explain_pair(pairing: object, table: StepTable, pair: Pair) -> ExplainedPair:
    why = pairing.describe_pair(table, pair) if isinstance(pairing, PairReasons) else compare_returns(table, pair)
    return ExplainedPair(
        task=table.task_ids[table.task[table.rollouts.first[pair.winner]]],
        winner=table.rollout_ids[pair.winner],
        loser=table.rollout_ids[pair.loser],
        winner_step=pair.winner_step,
        loser_step=pair.loser_step,
        gap=float(pair.gap),
        weight=float(pair.weight),
        why=why,
    )


# Steps that filters drop.


@dataclass(frozen=True, kw_only=True)
class DroppedStep:
    """A step that a filter dropped because of its advantage."""

    filter: str
    task: str | int
    rollout: str | int
    step: int
    credit: float


def find_steps_dropped_by_credit(algorithm: Algorithm, table: StepTable, credit: Credit) -> list[DroppedStep]:
    """Every step that is dropped by a filter which reads advantages, in the order of filters and table."""
    seen, earned = algorithm.estimator_table(table), credit.by_step()
    return [
        DroppedStep(
            filter=name_of(part),
            task=table.task_ids[table.task[step]],
            rollout=table.rollout_ids[table.rollout[step]],
            step=int(table.step[step]),
            credit=float(earned.values[step]),
        )
        for part in algorithm.credit_filters
        for step in np.flatnonzero(~part(seen, earned)).tolist()
    ]


def find_filters_that_drop(algorithm: Algorithm, table: StepTable, credit: Credit, step: int) -> list[str]:
    """The names of the filters that drop one step; if there are none, it trains."""
    seen, earned = algorithm.estimator_table(table), credit.by_step()
    bare = replace(table, filters=())
    reading = [part for part in algorithm.credit_filters if not part(seen, earned)[step]]
    others = [cast(Filter, part) for part in algorithm.filters if not getattr(part, "reads_credit", False)]
    return [name_of(part) for part in (*(part for part in others if not part(bare)[step]), *reading)]
