"""An update's credit, computed again from the rows of its journal: who was compared with whom, and why."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from groupwise.core.algorithm import Algorithm
from groupwise.core.credit import Comparison, Credit, Mixture, Shared, Trace
from groupwise.core.errors import ConfigError, RecordError
from groupwise.core.journal.states import StateBefore
from groupwise.core.own_rollout import find_own_rollout_only, spans_rollouts
from groupwise.core.parts.part import name_of
from groupwise.core.parts.stateful import join_columns
from groupwise.core.segments import IntArray
from groupwise.core.step_columns import lay_out_rows
from groupwise.core.step_table import StepTable
from groupwise.core.token_table import TokenTable
from groupwise.groups import ByHistory, ByState, ByTask
from groupwise.reports.explain.pairs import ExplainedPair, explain_pairs
from groupwise.reports.explain.token import TokenExplanation, add_neighbours, explain_token
from groupwise.reports.run.attempt_origins import find_joined
from groupwise.reports.run.credited_tokens import CreditedTokens
from groupwise.reports.run.response_text import TokenTexts

AGREEMENT = 1e-9
"""Largest relative distance at which two numbers count as one."""


@dataclass(frozen=True, kw_only=True)
class ComparisonGroup:
    """Whom a step was compared with, under one of the algorithm's ways to make groups."""

    by: str
    """What the group shares, in words."""
    members: int
    """Steps in the group, itself included; 0 = it is in none."""
    own_rollout_only: bool = False
    """Whether there are others in the group, and all of them are steps of its own rollout."""


@dataclass(frozen=True, eq=False, kw_only=True)
class DerivedCredit:
    """The step table of an update and the credit that an algorithm gives it."""

    algorithm: Algorithm
    """What gives the credit."""
    table: StepTable
    """The update's steps."""
    rows: Sequence[Mapping[str, Any]]
    """The rows that it was made of: those of the journal, then those of recalled attempts that were compared."""
    credit: Credit
    """Their credit, in the order of the rows."""
    recorded: Sequence[float]
    """The credit that the journal holds, in the same order."""

    @classmethod
    def compute(
        cls,
        trajectories: Sequence[Mapping[str, Any]],
        algorithm: Algorithm,
        states: Sequence[StateBefore] = (),
    ) -> DerivedCredit:
        """Compute the credit of an update's trajectories, as `Journal.trajectories` gives them.

        `states` is what the update's parts remembered when it began, as `Journal.states_before` gives it.
        """
        rows = [row for record in trajectories for row in record["steps"]]
        recorded = [value for record in trajectories for value in record["credit"]]
        number = next((record["number"] for record in trajectories if "number" in record), None)
        table = join_columns(make_step_table(rows, version=None if number is None else number - 1), states)
        table = algorithm.estimator_table(table)
        credit = algorithm.advantage(table)
        return cls(algorithm=algorithm, table=table, rows=rows, credit=credit, recorded=recorded)

    @property
    def agrees(self) -> bool:
        """Whether the numbers are those of the journal."""
        recorded = np.asarray(self.recorded, dtype=np.float64)
        return bool(np.allclose(self.credit.values, recorded, rtol=AGREEMENT, atol=AGREEMENT))

    def explain_token(self, step: int, position: int, texts: TokenTexts) -> TokenExplanation:
        """How one token of a step of the table comes by its credit."""
        tokens = TokenTable.from_rows(self.table, self.rows)
        explained = explain_token(self.algorithm, self.table, self.credit, tokens, step=step, position=position)
        ids = tokens.response(step)
        return add_neighbours(explained, ids, texts.cut(ids))

    def explain_pairs(self) -> list[ExplainedPair]:
        """The pairs that the loss was handed."""
        return explain_pairs(self.algorithm, self.table, self.credit)

    def credit_tokens(self) -> list[CreditedTokens] | None:
        """The credit of the tokens of each row, in the order of the rows; None where it is that of their steps."""
        if self.algorithm.token_credit is None:
            return None
        tokens = TokenTable.from_rows(self.table, self.rows)
        token_credit = self.algorithm.token_credit(self.table, self.credit.by_step(), tokens)
        keep = self.algorithm.keep(self.table, self.credit).tolist()
        return [
            CreditedTokens(
                ids=row.get("response_ids") or (),
                num_forced=int(row.get("forced") or 0),
                values=token_credit.values[tokens.row(number)],
                trains=token_credit.trains[tokens.row(number)] & may_train,
            )
            for number, (row, may_train) in enumerate(zip(self.rows, keep, strict=True))
        ]

    def credit_channels(self) -> dict[str, list[float]]:
        """The credit of each row in each further channel, by name."""
        return {name: credit.values.tolist() for name, credit in self.algorithm.channel_credit(self.table).items()}

    def find_company(self) -> list[tuple[ComparisonGroup, ...]]:
        """Whom each row was compared with, in the order of the rows."""
        levels = [
            (_describe_shared(trace.part), _count_members(trace.label), spans_rollouts(self.table, trace.label))
            for trace in _walk_comparisons(self.credit.trace)
        ]
        return [
            tuple(
                ComparisonGroup(
                    by=by, members=int(sizes[step]), own_rollout_only=bool(sizes[step] > 1 and not spans[step])
                )
                for by, sizes, spans in levels
            )
            for step in self.credit.step_of_row.tolist()
        ]

    def find_own_rollout_only(self) -> list[bool | None]:
        """Whether each row was compared only within its own rollout, in the order of the rows; None = not known."""
        own = find_own_rollout_only(self.table, self.credit.trace)
        return [None] * len(self.rows) if own is None else own[self.credit.step_of_row].tolist()


@dataclass(frozen=True, kw_only=True)
class UnderivableCredit:
    """The credit of an update does not derive again from its journal, which stands as it was written."""

    reason: str
    """Why, in words."""

    def describe(self, number: int) -> str:
        """What a page says of the update: why, and what stands in the place of what it would have shown."""
        return (
            f"The credit of update {number} cannot be derived again ({self.reason}): what is shown is the credit that "
            "the journal holds, without whom a step was compared with; whether a group was rescued goes by its outcomes"
        )


def describe_company(company: Sequence[ComparisonGroup]) -> str:
    """Whom a step was compared with.

    >>> before = ComparisonGroup(by="state and 1 before", members=2)
    >>> describe_company([ComparisonGroup(by="state", members=8), before])
    '7 others by state, 1 other by state and 1 before'
    """
    comparisons = [
        f"{level.members - 1} other{'s' if level.members > 2 else ''} by {level.by}"
        f"{' (its own rollout only)' if level.own_rollout_only else ''}"
        for level in company
        if level.members > 1
    ]
    return ", ".join(comparisons) or "nobody"


def derive_credit(
    trajectories: Sequence[Mapping[str, Any]],
    algorithm: Algorithm | None,
    recalled: Sequence[Mapping[str, Any]] = (),
    states: Sequence[StateBefore] = (),
) -> DerivedCredit | UnderivableCredit:
    """The credit computed again; or why it cannot be, which also holds where it is not what the journal holds.

    Args:
        trajectories: those of the update, as `Journal.trajectories` gives them.
        algorithm: what gave the credit; None = not known.
        recalled: what joined them, as `recalled_attempts` gives them.
        states: what parts remembered when the update began, as `Journal.states_before` gives it.
    """
    if algorithm is None:
        return UnderivableCredit(reason="the run's algorithm cannot be read here")
    if not any(record["steps"] for record in trajectories):
        return UnderivableCredit(reason="it has no steps")
    try:
        derived = DerivedCredit.compute([*trajectories, *choose_compared(recalled)], algorithm, states)
    except (RecordError, ConfigError) as error:
        return UnderivableCredit(reason=str(error))
    if not derived.agrees:
        furthest = float(np.max(np.abs(derived.credit.values - np.asarray(derived.recorded, dtype=np.float64))))
        return UnderivableCredit(reason=f"what comes of it now is another number, up to {furthest:.3g} away")
    return derived


def choose_compared(recalled: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The recalled attempts that were compared anew; the others train on the credit that they had."""
    return [record for record in recalled if not record["source"].keeps_credit]


def measure_without_rescue(
    trajectories: Sequence[Mapping[str, Any]], algorithm: Algorithm | None, states: Sequence[StateBefore] = ()
) -> dict[str, float] | None:
    """Mean size of the credit of each group's own steps, had nothing joined it and nothing been added to its rewards.

    None where it cannot be computed.
    """
    joined = find_joined(trajectories)
    own = [record for record in trajectories if (record["task"], record["attempt"]) not in joined]
    rows = [row | {"reward": row.get("reward_alone", row["reward"])} for record in own for row in record["steps"]]
    if algorithm is None or not rows:
        return None
    try:
        values = algorithm.credit(join_columns(make_step_table(rows), states)).values.tolist()
    except (RecordError, ConfigError):
        return None
    sizes: dict[str, list[float]] = {}
    for row, value in zip(rows, values, strict=True):
        sizes.setdefault(row["task"], []).append(abs(value))
    return {task: math.fsum(of_task) / len(of_task) for task, of_task in sizes.items()}


def make_step_table(rows: Sequence[Mapping[str, Any]], *, version: int | None = None) -> StepTable:
    """Rows of a journal as the table that their trajectories gave; `version` is that of the weights that learnt."""
    return StepTable.from_columns(**lay_out_rows(rows, version=version))


def _walk_comparisons(trace: Trace) -> Iterator[Comparison]:
    """Every comparison within groups that a number came from."""
    if isinstance(trace, Comparison):
        yield trace
        if trace.of is not None:
            yield from _walk_comparisons(trace.of)
    elif isinstance(trace, Mixture):
        for term in trace.terms:
            yield from _walk_comparisons(term)
    elif isinstance(trace, Shared):
        yield from _walk_comparisons(trace.of)


def _count_members(label: IntArray) -> IntArray:
    sizes = np.bincount(label[label >= 0], minlength=1)
    return np.where(label >= 0, sizes[np.maximum(label, 0)], 0)


def _describe_shared(part: object) -> str:
    """What the members of a group share, in words."""
    grouper = getattr(part, "by", None)
    if isinstance(grouper, ByTask):
        return "task"
    if isinstance(grouper, ByState) or (isinstance(grouper, ByHistory) and not grouper.depth):
        return "state"
    if isinstance(grouper, ByHistory):
        return f"state and {grouper.depth} before"
    return name_of(part if grouper is None else grouper)
