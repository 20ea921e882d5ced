"""Discriminative constrained optimization (Li et al. 2025, arXiv:2505.12366).

Axes: T tokens of a micro-batch, R trajectories of the update.
"""

from __future__ import annotations

import math
from typing import Annotated, ClassVar, Literal

from pydantic import Field
from torch import Tensor

from groupwise.extend import OLD_LOGP, LossResult, Part, Tally, TokenColumns, Totals, TrajectorySums, share_of_step

Positive = Annotated[float, Field(gt=0)]


class Disco(Part, slot="loss"):
    """Push the scores of solved rollouts above those of failed ones, the hardest failures first.

        J       = mean over the solved of s - tau * log( mean over the failed of exp(s / tau) ),   a group
        penalty = stiffness / 2 * max(0, KL - max_kl)^2,         KL = mean over all tokens of logp_old - logp
        loss    = -(mean over all groups of J) + penalty

    s is a rollout's mean log-prob, or its mean ratio, over its tokens. A group without a solved or without a failed
    rollout adds 0 and counts. Neither term is a sum over samples, so both get their slopes from a first pass:
    1 / (number solved) for a solved rollout, -softmax(s / tau) among the failed ones for a failed one, and
    stiffness * max(0, KL - max_kl) for the KL.
    """

    needs: ClassVar[frozenset[str]] = frozenset({OLD_LOGP})
    columns: ClassVar[frozenset[str]] = frozenset({"episode_return"})
    unit: ClassVar[str] = "sample"
    score: Literal["log_likelihood", "ratio"] = "log_likelihood"
    """What is pushed apart: mean log-prob, or mean ratio."""
    tau: Positive = 10.0
    """Below it, a difference between two failed rollouts hardly matters."""
    max_kl: Annotated[float, Field(ge=0)] = 1e-4
    """How far the policy may move without a penalty."""
    stiffness: Annotated[float, Field(ge=0)] = 1e3
    """How steep the penalty is beyond."""
    solved_above: float = 0.0
    """Return above which a rollout counts as solved."""

    def first_pass(self, columns: TokenColumns, totals: Totals) -> TrajectorySums:
        """Scores, returns and KL of each trajectory's tokens, summed."""
        columns = columns.select_trained()
        earned_T = columns.column("episode_return")
        return TrajectorySums.of(columns, totals, score=self._score(columns), earned=earned_T, kl=_kl(columns))

    def __call__(self, columns: TokenColumns, totals: Totals, summary: TrajectorySums) -> LossResult:
        columns = columns.select_trained()
        value, slope_R = self._contrast(summary, totals)
        kl = summary.sums["kl"].sum() / max(totals.tokens, 1)
        beyond = (kl - self.max_kl).clamp(min=0)
        pull_R = (self.stiffness * beyond / max(totals.tokens, 1)).expand(len(slope_R))
        by_contrast = share_of_step(value, slope_R / summary.tokens.clamp(min=1), self._score(columns), columns, totals)
        by_kl = share_of_step(self.stiffness / 2 * beyond.square(), pull_R, _kl(columns), columns, totals)
        tally = Tally(total=kl * len(columns), count=len(columns))
        return LossResult(loss=by_contrast + by_kl, metrics={"extra/disco_kl": tally})

    def _contrast(self, summary: TrajectorySums, totals: Totals) -> tuple[Tensor, Tensor]:
        """-J, mean over the groups, and its slope by the score of each trajectory (R)."""
        score_R, solved_R = summary.mean("score"), summary.mean("earned") > self.solved_above
        is_there_R = summary.tokens > 0
        value, slope_R = score_R.new_zeros(()), score_R.new_zeros(len(score_R))
        for group in summary.group[is_there_R].unique().tolist():
            here_R = is_there_R & (summary.group == group)
            solved, failed = ((here_R & which).nonzero()[:, 0] for which in (solved_R, ~solved_R))
            if not len(solved) or not len(failed):
                continue
            hard = score_R[failed] / self.tau
            worst = self.tau * (hard.logsumexp(0) - math.log(len(failed)))
            value = value - (score_R[solved].mean() - worst)
            slope_R[solved] = -1 / len(solved)
            slope_R[failed] = hard.softmax(0)
        return value / max(totals.groups, 1), slope_R / max(totals.groups, 1)

    def _score(self, columns: TokenColumns) -> Tensor:
        if self.score == "log_likelihood":
            return columns.logp
        return (columns.logp - columns.require(OLD_LOGP)).exp()


def _kl(columns: TokenColumns) -> Tensor:
    return columns.require(OLD_LOGP) - columns.logp
