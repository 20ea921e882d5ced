"""What a loss with a first pass usually takes from it: sums over the tokens of each trajectory.

Axes: T tokens of a micro-batch, R trajectories of the update.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from groupwise.core.errors import RecordError
from groupwise.core.totals import Totals
from groupwise.losses.token_columns import TokenColumns

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, eq=False, kw_only=True)
class TrajectorySums:
    """Sums over the tokens of each trajectory, by its number in the update; those of micro-batches add up.

    A trajectory may lie in several micro-batches: here are its tokens of all of them, once the summaries are merged.
    Sums are float64, whatever the log-probs are: statistics of groups are made of them.

    Worked example: trajectory 0 has one token here and one in another micro-batch, trajectory 1 two tokens here.

        here        tokens [1, 2]   sums["logp"] [-0.5, -3.0]
        elsewhere   tokens [1, 0]   sums["logp"] [-1.5,  0.0]
        merged      tokens [2, 2]   sums["logp"] [-2.0, -3.0]   mean("logp") [-1.0, -1.5]
    """

    tokens: Tensor
    """Tokens that train of each trajectory (R)."""
    group: Tensor
    """Group of each trajectory (R); -1 where none of its tokens has been seen."""
    sums: Mapping[str, Tensor]
    """Sum over its tokens, by name (R each)."""

    @classmethod
    def of(cls, columns: TokenColumns, totals: Totals, **values: Tensor) -> TrajectorySums:
        """Sum up a micro-batch.

        Args:
            columns: its tokens that train (`TokenColumns.select_trained`).
            totals: those of the optimiser step, which say how many trajectories there are.
            **values: what is summed, one number a token (T each).
        """
        num = len(totals.trajectory_tokens)
        if columns.group is None:
            raise RecordError("column 'group' is missing, which a first pass over groups reads; hand it in")
        if len(columns) and int(columns.trajectory.max()) >= num:
            raise RecordError(
                f"trajectory {int(columns.trajectory.max())} is not among the {num} of the totals; count the totals "
                "over all samples of the update (Totals.count) and number trajectories from 0"
            )
        ones_T = columns.logp.detach().new_ones(len(columns)).double()
        empty_R = ones_T.new_zeros(num)
        return cls(
            tokens=empty_R.index_add(0, columns.trajectory, ones_T),
            group=columns.group.new_full((num,), -1).index_copy(0, columns.trajectory, columns.group),
            sums={
                name: empty_R.index_add(0, columns.trajectory, value_T.detach().to(ones_T))
                for name, value_T in values.items()
            },
        )

    def __add__(self, other: TrajectorySums) -> TrajectorySums:
        return TrajectorySums(
            tokens=self.tokens + other.tokens,
            group=self.group.maximum(other.group),
            sums={name: sum_R + other.sums[name] for name, sum_R in self.sums.items()},
        )

    def mean(self, name: str) -> Tensor:
        """Mean over each trajectory's tokens (R); 0 where it has none."""
        return self.sums[name] / self.tokens.clamp(min=1)


def share_of_step(value: Tensor, slope_R: Tensor, moving_T: Tensor, columns: TokenColumns, totals: Totals) -> Tensor:
    """A micro-batch's share of a loss of the whole optimiser step; the shares add up to its value and gradient.

        share = sum_t slope[trajectory of t] * (x_t - sg(x_t)) + sg(value) * tokens here / tokens of the step

    where x_t is what the loss sums up over each trajectory, and the slope of a trajectory is the derivative of the
    loss by its sum: what a first pass is there to find. Values are spread evenly over the tokens, as any way to split
    a number that belongs to all of them must be by convention.

    Args:
        value: the loss of the whole optimiser step, a scalar.
        slope_R: its derivative by the sum over each trajectory's tokens (R).
        moving_T: what is summed (T), with its gradient.
        columns: the micro-batch's tokens that train.
        totals: those of the optimiser step.
    """
    moved_T = moving_T - moving_T.detach()
    by_gradient = (slope_R.detach().index_select(0, columns.trajectory).to(moved_T) * moved_T).sum()
    return by_gradient + (value.detach() * (len(columns) / max(totals.tokens, 1))).to(moved_T)
