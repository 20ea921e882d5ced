from __future__ import annotations

from dataclasses import replace
from typing import ClassVar, Literal

from groupwise.data.samples import Totals
from groupwise.losses import (
    OLD_LOGP,
    Kl,
    LossResult,
    MeasuringPenalty,
    PenaltyPart,
    Tally,
    Tensor,
    TokenColumns,
    TrajectorySums,
    Unit,
    read_declared,
    share_of_step,
    tally_tokens,
)
from groupwise.methods.grpo import grpo
from groupwise.methods.method import method
from groupwise.parts import Algorithm, Finite, NotNegative, Part


@method
def reg_grpo(*, floor: Finite = 0.5, kl: Finite = 0.04) -> Algorithm:
    """Reg-GRPO (DeepVideo-R1, Park et al. 2025, arXiv:2506.07464, from notes on it): fit log-ratios to the advantages.

    loss = mean_i (A_i - P_i)^2 + kl * k3;   P_i = (R_i - mean(R)) / max(std(R), floor),   R_i = log pi / pi_old

    Choices: ours are the weight of the KL and the floor of the standard deviation, which is 0 at the first step. R is
    summed over all steps of a rollout. Groups without an advantage are left out. The source's hints for hard prompts
    are not here.
    """
    return Algorithm(advantage=grpo().advantage, loss=Regression(floor=floor, penalties=(Kl(weight=kl),)))


class Regression(Part, slot="loss"):
    """Fit each rollout's log-ratio, in units of its group's, to its advantage: no clip, no minimum.

        P_i  = (R_i - mean(R)) / max(sg(std(R)), floor),   R_i = sum over tokens of logp - logp_old,   over the group
        loss = mean_i (A_i - P_i)^2 + sum_k weight_k * mean over tokens of penalty_k

    The first pass finds the log-ratios of the group; with m_i = P_i - A_i the slope by R_i is 2 (m_i - mean(m)) /
    (rollouts * divisor). Subtracting the mean cancels the partition function.

    Source: Reg-GRPO of DeepVideo-R1 (Park et al. 2025, arXiv:2506.07464). Choices: the (sample) standard deviation has
    no gradient. A rollout's A is the mean over its tokens. A group without an advantage adds 0 and counts, because its
    log-ratios would only be pulled together.
    """

    floor: NotNegative = 0.5
    """The smallest standard deviation that log-ratios are divided by, in nats."""
    length: Literal["sum", "mean"] = "sum"
    """Whether a log-ratio is summed over a rollout's tokens or averaged."""
    penalties: tuple[PenaltyPart, ...] = ()
    """Terms that are added to the loss, mean over tokens."""
    unit: ClassVar[Unit] = "sample"

    @property
    def needs(self) -> frozenset[str]:
        return frozenset({OLD_LOGP}) | read_declared(self._list_active(), "needs")

    @property
    def columns(self) -> frozenset[str]:
        return read_declared(self._list_active(), "columns")

    def first_pass(self, columns: TokenColumns, totals: Totals) -> TrajectorySums:
        columns = columns.select_trained()
        change_T = columns.logp - columns.require(OLD_LOGP)
        return TrajectorySums.of(columns, totals, change=change_T, credit=columns.advantage)

    def __call__(self, columns: TokenColumns, totals: Totals, summary: TrajectorySums) -> LossResult:
        columns = columns.select_trained()
        value, slope_R = self._fit(summary, totals)
        loss = share_of_step(value, slope_R, columns.logp, columns, totals)
        metrics = {"extra/regression_error": Tally(total=value * len(columns), count=len(columns))}
        for penalty in self._list_active():
            loss = loss + penalty.weight * penalty(columns).sum() / max(totals.tokens, 1)
            if isinstance(penalty, MeasuringPenalty):
                own = columns  # metrics are about tokens of the current policy
                if columns.off_policy is not None:
                    own = replace(columns, mask=~columns.off_policy).select_trained()
                metrics |= tally_tokens(penalty.measure(own), columns.logp)
        return LossResult(loss=loss, metrics=metrics)

    def _fit(self, summary: TrajectorySums, totals: Totals) -> tuple[Tensor, Tensor]:
        """The mean squared error over the rollouts, and its slope by the sum of each one's log-ratios (R)."""
        change_R = summary.sums["change"] if self.length == "sum" else summary.mean("change")
        credit_R, is_there_R = summary.mean("credit"), summary.tokens > 0
        value, slope_R = change_R.new_zeros(()), change_R.new_zeros(len(change_R))
        for group in summary.group[is_there_R].unique().tolist():
            here = (is_there_R & (summary.group == group)).nonzero()[:, 0]
            if not credit_R[here].any():
                continue
            centred = change_R[here] - change_R[here].mean()
            spread = (centred.square().sum() / max(len(here) - 1, 1)).sqrt().clamp(min=self.floor)
            miss = centred / (spread if spread > 0 else 1.0) - credit_R[here]
            value = value + miss.square().sum()
            slope_R[here] = 2 * (miss - miss.mean()) / (spread if spread > 0 else 1.0)
        if self.length == "mean":
            slope_R = slope_R / summary.tokens.clamp(min=1)
        num = max(totals.trajectories, 1)
        return value / num, slope_R / num

    def _list_active(self) -> tuple[PenaltyPart, ...]:
        return tuple(penalty for penalty in self.penalties if penalty.weight)
