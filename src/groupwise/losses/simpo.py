"""A preference loss over pairs of attempts, without a reference policy. Axes: T tokens, R trajectories, P pairs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, ClassVar

from pydantic import Field

from groupwise.core.parts.part import Part
from groupwise.core.totals import Totals
from groupwise.losses.policy_loss import LossResult, Tally
from groupwise.losses.token_columns import PAIRS, TokenColumns, Unit
from groupwise.losses.trajectory_sums import TrajectorySums, share_of_step

if TYPE_CHECKING:
    from torch import Tensor


class Simpo(Part, slot="loss"):
    """Make the better attempt of each pair likelier, per token, than the worse one, by a margin.

        loss = sum_p weight_p * -log sigmoid( beta * (mean logp of the winner - mean logp of the loser) - gamma )
               / sum_p weight_p,           gamma = beta * margin

    The mean is over all sampled tokens of an attempt. The slope by the log-prob of a winner's token is
    -weight_p / (sum of weights) * beta / L * sigmoid(gamma - beta * gap), a loser's has the other sign; the first pass
    finds the gaps, so that the gradient is a sum over samples, and the two need not lie in one micro-batch.

    Source: SimPO (Meng et al. 2024, arXiv:2405.14734); released values are beta 2 to 10 and margins of 0.1 to 0.8.
    Choices: pairs come from the slot `pairing` of the algorithm, not from a data set; credit is not read, beyond who
    is paired with whom. Published runs are offline: here the pairs are those that the policy has just sampled.
    """

    needs: ClassVar[frozenset[str]] = frozenset({PAIRS})
    unit: ClassVar[Unit] = "sample"
    beta: Annotated[float, Field(gt=0)] = 2.5
    """How steeply a pair is told apart."""
    margin: Annotated[float, Field(ge=0)] = 0.55
    """How much likelier a winner's token should be, in nats (the release's gamma / beta)."""

    def first_pass(self, columns: TokenColumns, totals: Totals) -> TrajectorySums:
        """Log-prob and tokens of each trajectory."""
        columns = columns.select_trained()
        return TrajectorySums.of(columns, totals, logp=columns.logp)

    def __call__(self, columns: TokenColumns, totals: Totals, summary: TrajectorySums) -> LossResult:
        columns = columns.select_trained()
        mean_R = summary.mean("logp")
        winner_P = columns.trajectory.new_tensor([pair.winner for pair in totals.pair_members])
        loser_P = columns.trajectory.new_tensor([pair.loser for pair in totals.pair_members])
        weight_P = mean_R.new_tensor([pair.weight for pair in totals.pair_members]) / (totals.pair_weight or 1)
        gap_P = mean_R.index_select(0, winner_P) - mean_R.index_select(0, loser_P)
        away_P = self.beta * (self.margin - gap_P)
        value = (weight_P * _softplus(away_P)).sum()
        pull_P = self.beta * weight_P * away_P.sigmoid()
        slope_R = mean_R.new_zeros(len(mean_R)).index_add(0, winner_P, -pull_P).index_add(0, loser_P, pull_P)
        loss = share_of_step(value, slope_R / summary.tokens.clamp(min=1), columns.logp, columns, totals)
        measured = {"pair_gap": gap_P, "pair_accuracy": (gap_P > 0).to(gap_P)} if totals.pairs else {}
        # A pair belongs to no micro-batch, so each of them reports all pairs, by the number of its tokens.
        num = len(columns)
        metrics = {f"loss/{name}": Tally(total=value_P.mean() * num, count=num) for name, value_P in measured.items()}
        return LossResult(loss=loss, metrics=metrics)


def _softplus(value_P: Tensor) -> Tensor:
    """log(1 + exp(value)), exact where the value is large."""
    return value_P.clamp(min=0) + (-value_P.abs()).exp().log1p()
