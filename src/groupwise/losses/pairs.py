"""Losses over pairs: the first pass sums over the tokens of each member, which is a rollout or one step of it.

Axes: T tokens of a micro-batch, M members of pairs, P pairs of the optimizer step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import combinations
from typing import ClassVar, Literal

import numpy as np

from groupwise.data.samples import Pair, Totals, compare_returns, differ
from groupwise.data.step_table import StepTable
from groupwise.losses.policy_loss import LossResult, Tally
from groupwise.losses.token_columns import Tensor, TokenColumns, Unit
from groupwise.parts.part import Part

PerPair = Literal["weight", "pair"]
"""What the terms of all pairs are divided by: the sum of their weights, or their number."""


@dataclass(frozen=True, eq=False, kw_only=True)
class PairSums:
    """Sums over the tokens of each member of a pair; those of micro-batches add up.

    A member may be split over several micro-batches, and its opponent over others. Members are in ascending order of
    (trajectory, step), a whole rollout before its steps. Sums are float64, whatever the type of the log-probs.
    """

    tokens: Tensor
    """Number of tokens of each member that train (M)."""
    sums: Mapping[str, Tensor]
    """Sum over its tokens, by name (M each)."""

    @classmethod
    def of(cls, columns: TokenColumns, totals: Totals, **values: Tensor) -> PairSums:
        """Sum over a micro-batch: `columns` are its tokens that train, `values` the summands (T each)."""
        places, num = _find_places(columns, totals), len(_list_members(totals))
        # In float64: a pair compares the sums of two long rollouts, and their last digits decide.
        ones_T = columns.logp.detach().new_ones(len(columns)).double()

        def add_up(value_T: Tensor) -> Tensor:
            sum_M = ones_T.new_zeros(num + 1)
            for place_T in places:
                sum_M = sum_M.index_add(0, place_T, value_T.detach().to(ones_T))
            return sum_M[:num]

        return cls(tokens=add_up(ones_T), sums={name: add_up(value_T) for name, value_T in values.items()})

    def __add__(self, other: PairSums) -> PairSums:
        sums = {name: sum_M + other.sums[name] for name, sum_M in self.sums.items()}
        return PairSums(tokens=self.tokens + other.tokens, sums=sums)


@dataclass(frozen=True, eq=False, kw_only=True)
class PairTerms:
    """The pairs of an optimizer step, as positions among the members and numbers (P each)."""

    winner: Tensor
    """Position of the winner among the members."""
    loser: Tensor
    """Position of the loser among the members."""
    weight: Tensor
    """Weight of the pair in the loss."""
    gap: Tensor
    """How much better the winner is."""

    @classmethod
    def of(cls, totals: Totals, like: Tensor, per: PerPair = "weight") -> PairTerms:
        """The pairs of the totals, in float64 and on the device of `like`."""
        like = like.new_zeros(0).double()
        position = {member: number for number, member in enumerate(_list_members(totals))}
        winner, loser = ([position[_key(pair.members[side])] for pair in totals.pair_members] for side in (0, 1))
        divisor = totals.pair_weight if per == "weight" else totals.pairs
        return cls(
            winner=like.new_tensor(winner).long(),
            loser=like.new_tensor(loser).long(),
            weight=like.new_tensor([pair.weight for pair in totals.pair_members]) / (divisor or 1),
            gap=like.new_tensor([pair.gap for pair in totals.pair_members]),
        )

    def contrast(self, value_M: Tensor) -> Tensor:
        """A number of each winner minus that of its loser (P)."""
        return value_M.index_select(0, self.winner) - value_M.index_select(0, self.loser)


def share_of_pairs(
    value_of: Callable[[Tensor], Tensor], summary: PairSums, columns: TokenColumns, totals: Totals
) -> Tensor:
    """A micro-batch's part of a loss over pairs; the parts add up to its value and gradient.

    Args:
        value_of: from the log-prob sums of the members (M) to the loss of the whole optimizer step, a scalar.
        summary: these sums, under the name `logp`.
        columns: the micro-batch's tokens that train.
        totals: those of the optimizer step.
    """
    logp_M = summary.sums["logp"].detach().clone().requires_grad_()
    value = value_of(logp_M)
    value.backward()
    assert logp_M.grad is not None, "the loss depends on the log-probs, even without a pair"
    slope_M = logp_M.new_zeros(len(logp_M) + 1)
    slope_M[:-1] = logp_M.grad
    moved_T = columns.logp - columns.logp.detach()
    slopes = [slope_M.index_select(0, place_T) for place_T in _find_places(columns, totals)]
    by_gradient = ((slopes[0] + slopes[1]).to(moved_T) * moved_T).sum()
    return by_gradient + (value.detach() * (len(columns) / max(totals.tokens, 1))).to(moved_T)


class PairLoss(Part):
    """A loss over pairs: a first pass sums over each member; the loss is the sum of weight x loss of each pair.

    The members of a pair may lie in different micro-batches, so a first pass finds their sums. The gradient is then a
    sum over samples.
    """

    unit: ClassVar[Unit] = "sample"

    def first_pass(self, columns: TokenColumns, totals: Totals) -> PairSums:
        columns = columns.select_trained()
        return PairSums.of(columns, totals, logp=columns.logp, **self.list_sums(columns))

    def __call__(self, columns: TokenColumns, totals: Totals, summary: PairSums) -> LossResult:
        columns = columns.select_trained()
        pairs = PairTerms.of(totals, columns.logp.detach(), self.choose_divisor())
        loss = share_of_pairs(
            lambda logp_M: (pairs.weight * self.lose(logp_M, summary, pairs)).sum(), summary, columns, totals
        )
        if not totals.pairs:
            return LossResult(loss=loss, metrics={})
        # The gap of winners and losers per token. A pair belongs to no micro-batch, so each micro-batch reports all
        # pairs, weighted by the number of its tokens.
        gap_P, num = pairs.contrast(summary.sums["logp"] / summary.tokens.clamp(min=1)), len(columns)
        measured = {"loss/pair_gap": gap_P, "loss/pair_accuracy": (gap_P > 0).to(gap_P)}
        metrics = {name: Tally(total=value_P.mean() * num, count=num) for name, value_P in measured.items()}
        return LossResult(loss=loss, metrics=metrics)

    def list_sums(self, columns: TokenColumns) -> dict[str, Tensor]:
        """What is summed besides log-probs (T each)."""
        return {}

    def choose_divisor(self) -> PerPair:
        return "weight"

    def lose(self, logp_M: Tensor, summary: PairSums, pairs: PairTerms) -> Tensor:
        """The loss of each pair (P), given the log-prob sum of each member (M)."""
        raise NotImplementedError


def softplus(value_P: Tensor) -> Tensor:
    """log(1 + exp(value)), exact for large values; its slope at 0, where a run starts, is 1/2."""
    return value_P.logaddexp(value_P.new_zeros(()))


def _key(member: tuple[int, int | None]) -> tuple[int, int]:
    """A member as (trajectory, place): 0 = the whole rollout, else the step from 1."""
    return member[0], 0 if member[1] is None else member[1] + 1


def _list_members(totals: Totals) -> list[tuple[int, int]]:
    """The members of all pairs, each once, in ascending order."""
    return sorted({_key(member) for pair in totals.pair_members for member in pair.members})


def _find_places(columns: TokenColumns, totals: Totals) -> tuple[Tensor, Tensor]:
    """The member that each token's rollout is, and the member that its step is (T each); else the number of members."""
    members = _list_members(totals)
    width = max([place for _, place in members] + [int(columns.step.max()) + 1 if len(columns) else 0]) + 1
    number_of = columns.trajectory.new_full((len(totals.trajectory_tokens) * width,), len(members))
    for number, (trajectory, place) in enumerate(members):
        number_of[trajectory * width + place] = number
    rollout_T = columns.trajectory * width
    return number_of.index_select(0, rollout_T), number_of.index_select(0, rollout_T + columns.step + 1)


# Pairings: which rollouts of a group a loss compares. Axes: S steps, A rollouts.


class BestAgainstWorst(Part, slot="pairing"):
    """One pair per task: the rollout with the highest return against the one with the lowest.

    Source: the usual way from groups to preference pairs (SimPO, Meng et al. 2024, arXiv:2405.14734, takes the best and
    the worst of five answers). Choices: of equal rollouts the first counts. A task whose rollouts all did equally well
    has no pair. Rollouts without a step that may train are left out first.
    """

    def __call__(self, table: StepTable) -> list[Pair]:
        pairs = []
        for returns in _list_returns_by_task(table):
            best, worst = max(returns, key=returns.__getitem__), min(returns, key=returns.__getitem__)
            if differ(returns[best], returns[worst]):
                pairs.append(Pair(best, worst, gap=returns[best] - returns[worst]))
        return pairs

    def describe_pair(self, table: StepTable, pair: Pair) -> str:
        return f"best and worst rollout at the task: {compare_returns(table, pair)}"


class AllPairs(Part, slot="pairing"):
    """Every two rollouts of a task whose returns differ, the better one against the worse one.

    Source: P3O (Wu et al. 2023, arXiv:2310.00212) has two answers per prompt; all pairs of a larger group are our
    extension. Choice: each task counts the same by default, however many pairs it has: a pair's weight is 1 / (pairs of
    its task).
    """

    counts: Literal["task", "pair"] = "task"
    """What counts the same: every task that has a pair, or every pair."""

    def __call__(self, table: StepTable) -> list[Pair]:
        pairs = []
        for returns in _list_returns_by_task(table):
            differing = [(a, b) for a, b in combinations(returns, 2) if differ(returns[a], returns[b])]
            weight = 1.0 if self.counts == "pair" else 1 / max(len(differing), 1)
            for a, b in differing:
                winner, loser = (a, b) if returns[a] > returns[b] else (b, a)
                pairs.append(Pair(winner, loser, weight, returns[winner] - returns[loser]))
        return pairs

    def describe_pair(self, table: StepTable, pair: Pair) -> str:
        return f"two rollouts at the task: {compare_returns(table, pair)}"


def _list_returns_by_task(table: StepTable) -> Iterator[dict[int, float]]:
    """The return of each rollout that has a step that may train, by its number, task by task."""
    trains_A = table.rollouts.sum(table.trains.astype(np.float64)) > 0
    first_A = table.rollouts.first
    task_A, return_A = table.task[first_A].tolist(), table.episode_return[first_A].tolist()
    tasks: dict[int, dict[int, float]] = {}
    for rollout in np.flatnonzero(trains_A).tolist():
        tasks.setdefault(task_A[rollout], {})[rollout] = return_A[rollout]
    yield from tasks.values()
