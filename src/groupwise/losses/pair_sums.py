"""What a loss over pairs takes from its first pass: sums over the tokens of each member, an attempt or one step of it.

Axes: T tokens of a micro-batch, M members of pairs, P pairs of the optimiser step.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from groupwise.core.totals import Totals
from groupwise.losses.policy_loss import Tally
from groupwise.losses.token_columns import TokenColumns

if TYPE_CHECKING:
    from torch import Tensor

PerPair = Literal["weight", "pair"]
"""What the terms of all pairs are divided by: the sum of their weights, or their number."""


@dataclass(frozen=True, eq=False, kw_only=True)
class PairSums:
    """Sums over the tokens of each member of a pair; those of micro-batches add up.

    A member may lie in several micro-batches, and its opponent in others again. Members are in ascending order of
    (trajectory, step), a whole attempt before its steps. Sums are float64, whatever the log-probs are.
    """

    tokens: Tensor
    """Tokens that train of each member (M)."""
    sums: Mapping[str, Tensor]
    """Sum over its tokens, by name (M each)."""

    @classmethod
    def of(cls, columns: TokenColumns, totals: Totals, **values: Tensor) -> PairSums:
        """Sum up a micro-batch: `columns` are its tokens that train, `values` what is summed (T each)."""
        places, num = _find_places(columns, totals), len(_list_members(totals))
        # In float64: a pair holds the sums of two long attempts against each other, and their last digits decide.
        ones_T = columns.logp.detach().new_ones(len(columns)).double()

        def add_up(value_T: Tensor) -> Tensor:
            sum_M = ones_T.new_zeros(num + 1)
            for place_T in places:
                sum_M = sum_M.index_add(0, place_T, value_T.detach().to(ones_T))
            return sum_M[:num]

        return cls(
            tokens=add_up(ones_T),
            sums={name: add_up(value_T) for name, value_T in values.items()},
        )

    def __add__(self, other: PairSums) -> PairSums:
        sums = {name: sum_M + other.sums[name] for name, sum_M in self.sums.items()}
        return PairSums(tokens=self.tokens + other.tokens, sums=sums)


@dataclass(frozen=True, eq=False, kw_only=True)
class PairTerms:
    """The pairs of an optimiser step, as positions among the members and numbers (P each)."""

    winner: Tensor
    """Position of the winner among the members."""
    loser: Tensor
    """Position of the loser among the members."""
    weight: Tensor
    """Share of the pair in the loss."""
    gap: Tensor
    """How much better the winner did."""

    @classmethod
    def of(cls, totals: Totals, like: Tensor, per: PerPair = "weight") -> PairTerms:
        """The pairs of the totals, in float64 and where `like` is."""
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
        """A number of each winner, less that of its loser (P)."""
        return value_M.index_select(0, self.winner) - value_M.index_select(0, self.loser)


def share_of_pairs(
    value_of: Callable[[Tensor], Tensor], summary: PairSums, columns: TokenColumns, totals: Totals
) -> Tensor:
    """A micro-batch's share of a loss over pairs; the shares add up to its value and gradient.

    Args:
        value_of: the loss of the whole optimiser step, a scalar, of the sums of each member's log-probs (M).
        summary: those sums, under the name `logp`.
        columns: the micro-batch's tokens that train.
        totals: those of the optimiser step.
    """
    logp_M = summary.sums["logp"].detach().clone().requires_grad_()
    value = value_of(logp_M)
    value.backward()
    assert logp_M.grad is not None, "the loss hangs on the log-probs, even where there is no pair"
    slope_M = logp_M.new_zeros(len(logp_M) + 1)
    slope_M[:-1] = logp_M.grad
    moved_T = columns.logp - columns.logp.detach()
    slopes = [slope_M.index_select(0, place_T) for place_T in _find_places(columns, totals)]
    by_gradient = ((slopes[0] + slopes[1]).to(moved_T) * moved_T).sum()
    return by_gradient + (value.detach() * (len(columns) / max(totals.tokens, 1))).to(moved_T)


def measure_pairs(summary: PairSums, columns: TokenColumns, totals: Totals) -> dict[str, Tally]:
    """How far apart, a token, winners and losers are; nothing where there is no pair.

    A pair belongs to no micro-batch, so each of them reports all pairs, by the number of its tokens.
    """
    if not totals.pairs:
        return {}
    mean_M, num = summary.sums["logp"] / summary.tokens.clamp(min=1), len(columns)
    gap_P = PairTerms.of(totals, mean_M).contrast(mean_M)
    measured = {"pair_gap": gap_P, "pair_accuracy": (gap_P > 0).to(gap_P)}
    return {f"loss/{name}": Tally(total=value_P.mean() * num, count=num) for name, value_P in measured.items()}


def softplus(value_P: Tensor) -> Tensor:
    """log(1 + exp(value)), exact where the value is large; its slope at 0, where a run starts, is 1/2."""
    return value_P.logaddexp(value_P.new_zeros(()))


def _key(member: tuple[int, int | None]) -> tuple[int, int]:
    """A member as (trajectory, place): 0 = the whole attempt, else the step from 1."""
    return member[0], 0 if member[1] is None else member[1] + 1


def _list_members(totals: Totals) -> list[tuple[int, int]]:
    """The members of all pairs, each once, in ascending order."""
    return sorted({_key(member) for pair in totals.pair_members for member in pair.members})


def _find_places(columns: TokenColumns, totals: Totals) -> tuple[Tensor, Tensor]:
    """Which member each token's attempt is, and which its step (T each); the number of members where it is none."""
    members = _list_members(totals)
    width = max([place for _, place in members] + [int(columns.step.max()) + 1 if len(columns) else 0]) + 1
    number_of = columns.trajectory.new_full((len(totals.trajectory_tokens) * width,), len(members))
    for number, (trajectory, place) in enumerate(members):
        number_of[trajectory * width + place] = number
    attempt_T = columns.trajectory * width
    return number_of.index_select(0, attempt_T), number_of.index_select(0, attempt_T + columns.step + 1)
