"""Explaining pairs: which attempts or steps a loss holds against each other, by how much they differ, and why."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from groupwise.data.credit import Credit
from groupwise.data.samples import Pair, PairReasons, compare_returns
from groupwise.data.segments import BoolArray
from groupwise.data.step_table import StepTable
from groupwise.parts.algorithm import Algorithm


@dataclass(frozen=True, kw_only=True)
class ExplainedPair:
    """Two attempts at a task, or one step of each, that a loss holds against each other."""

    task: str | int
    """Id of the winner's task."""
    winner: str | int
    """Id of the better attempt."""
    loser: str | int
    """Id of the worse attempt."""
    winner_step: int | None
    """Index of the winner's step that is meant; None = the whole attempt."""
    loser_step: int | None
    """Index of the loser's step that is meant; None = the whole attempt."""
    gap: float
    """How much better the winner did, in units of what was compared: the margin."""
    weight: float
    """How much the pair counts beside the others."""
    why: str
    """Why the two are a pair, with the numbers that were compared."""

    @property
    def sides(self) -> tuple[str, str]:
        """Winner and loser in words."""
        sides = ((self.winner, self.winner_step), (self.loser, self.loser_step))
        first, second = (f"attempt {name}" + ("" if step is None else f", step {step}") for name, step in sides)
        return first, second

    def describe(self) -> str:
        """The pair in a line."""
        first, second = self.sides
        winner = first if self.winner_step is None else f"{first},"
        return f"{winner} over {second}: {self.why}; margin {self.gap:.6g}, weight {self.weight:.6g}"


def explain_pairs(algorithm: Algorithm, table: StepTable, credit: Credit) -> list[ExplainedPair]:
    """Every pair of a table, in the order of the pairing; none where the algorithm has no pairing.

    Args:
        algorithm: whose pairing is meant.
        table: the steps.
        credit: what the algorithm gives them, for filters that read it.
    """
    if algorithm.pairing is None:
        return []
    keep = algorithm.keep(table, credit)
    trained = _list_trained(table, keep)
    pairs = [pair for pair in algorithm.find_pairs(table, keep) if trained.issuperset(pair.members)]
    return [_explain_pair(algorithm.pairing, table, pair) for pair in pairs]


def choose_pairs(
    pairs: Iterable[ExplainedPair], *, task: str | int, attempt: str | int, step: int | None = None
) -> list[ExplainedPair]:
    """The pairs that an attempt is in; with a step, those alone that mean the whole attempt or that step."""
    chosen = []
    for pair in pairs:
        sides = ((pair.winner, pair.winner_step), (pair.loser, pair.loser_step))
        if str(pair.task) == str(task) and any(
            str(name) == str(attempt) and (step is None or index is None or index == step) for name, index in sides
        ):
            chosen.append(pair)
    return chosen


def _list_trained(table: StepTable, keep: BoolArray) -> set[tuple[int, int | None]]:
    """The attempts and the steps that train: a pair of which a member sampled no token is left out of the loss."""
    steps = table.step_of_row[keep]
    steps = steps[table.tokens[steps] > 0]
    attempts = table.attempt[steps].tolist()
    return {*zip(attempts, table.index[steps].tolist(), strict=True), *((attempt, None) for attempt in attempts)}


def _explain_pair(pairing: object, table: StepTable, pair: Pair) -> ExplainedPair:
    why = pairing.describe_pair(table, pair) if isinstance(pairing, PairReasons) else compare_returns(table, pair)
    return ExplainedPair(
        task=table.task_ids[table.task[table.attempts.first[pair.winner]]],
        winner=table.attempt_ids[pair.winner],
        loser=table.attempt_ids[pair.loser],
        winner_step=pair.winner_step,
        loser_step=pair.loser_step,
        gap=float(pair.gap),
        weight=float(pair.weight),
        why=why,
    )
