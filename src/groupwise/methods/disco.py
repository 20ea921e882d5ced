from __future__ import annotations

import math
from typing import ClassVar, Literal

from pydantic import NonNegativeFloat

from groupwise.data.samples import Totals
from groupwise.losses import OLD_LOGP, LossResult, Tally, Tensor, TokenColumns, TrajectorySums, Unit, k3, share_of_step
from groupwise.methods.grpo import grpo
from groupwise.methods.method import method
from groupwise.parts import Algorithm, Finite, NotNegative, Part, Positive


@method
def disco(
    *,
    score: Literal["log_likelihood", "ratio"] = "log_likelihood",
    negatives: Literal["hardest", "mean"] = "hardest",
    tau: Finite | None = None,
    max_kl: Finite = 1e-4,
    stiffness: Finite = 1e3,
    solved_above: Finite = 0.5,
) -> Algorithm:
    """DisCO (Li et al. 2025, arXiv:2505.12366): solved rollouts are pushed above failed ones, within a bound on the KL.

    J = mean over the solved of s - tau * log(mean over the failed of exp(s / tau));   loss = -mean J + KL hinge

    Choices: advantages are GRPO's and only reported; the loss reads whether returns are above `solved_above`. s is the
    mean log-prob; `score="ratio"` takes mean ratios. The default tau is the release's: 10, and 1 for ratios.
    `negatives="mean"` is DisCO-b. Written from the formulas: the release has two errors there. A group that is all
    solved or all failed adds 0 and counts.
    """
    if tau is None:
        tau = 1.0 if score == "ratio" else 10.0
    loss = Disco(
        score=score, negatives=negatives, tau=tau, max_kl=max_kl, stiffness=stiffness, solved_above=solved_above
    )
    return Algorithm(advantage=grpo().advantage, loss=loss)


class Disco(Part, slot="loss"):
    """Push the scores of solved rollouts above those of failed ones, the hardest failures first.

        J       = mean over the solved of s - tau * log( mean over the failed of exp(s / tau) ),   a group
        J       = mean over the solved of s - mean over the failed of s                            `negatives="mean"`
        penalty = stiffness / 2 * max(0, KL - max_kl)^2,         KL = mean over all tokens of logp_old - logp
        loss    = -(mean over all groups of J) + penalty

    s is a rollout's mean log-prob, or its mean ratio, over its tokens. Neither term is a sum over samples, so a first
    pass finds both slopes: 1 / (number solved) for a solved rollout, -softmax(s / tau) among the failed ones for a
    failed one, and stiffness * max(0, KL - max_kl) for the KL.

    Source: DisCO (Li et al. 2025, arXiv:2505.12366), by the formulas: in the release, the ratio score calls the wrong
    function, and the value of the log-mean-exp is a surrogate. Advantages are not read.
    """

    needs: ClassVar[frozenset[str]] = frozenset({OLD_LOGP})
    columns: ClassVar[frozenset[str]] = frozenset({"episode_return"})
    unit: ClassVar[Unit] = "sample"
    score: Literal["log_likelihood", "ratio"] = "log_likelihood"
    """What is pushed apart: mean log-prob, or mean ratio."""
    negatives: Literal["hardest", "mean"] = "hardest"
    """Whether more likely failures count more, or all the same."""
    tau: Positive = 10.0
    """Below this, a difference between two failed rollouts has little effect."""
    kl: Literal["difference", "low_variance"] = "difference"
    """How the change is measured at a token: logp_old - logp, or rho - 1 - log rho."""
    max_kl: NonNegativeFloat = 1e-4
    """How far the policy may move without a penalty."""
    stiffness: NotNegative = 1e3
    """Slope of the penalty beyond the bound."""
    solved_above: float = 0.5
    """Return above which a rollout is solved."""

    def first_pass(self, columns: TokenColumns, totals: Totals) -> TrajectorySums:
        columns = columns.select_trained()
        earned_T = columns.column("episode_return")
        score_T, kl_T = self._score(columns), self._measure_change(columns)
        return TrajectorySums.of(columns, totals, score=score_T, earned=earned_T, kl=kl_T)

    def __call__(self, columns: TokenColumns, totals: Totals, summary: TrajectorySums) -> LossResult:
        columns = columns.select_trained()
        value, slope_R = self._contrast(summary, totals)
        kl = summary.sums["kl"].sum() / max(totals.tokens, 1)
        beyond = (kl - self.max_kl).clamp(min=0)
        pull_R = (self.stiffness * beyond / max(totals.tokens, 1)).expand(len(slope_R))
        slope_R = slope_R / summary.tokens.clamp(min=1)
        by_contrast = share_of_step(value, slope_R, self._score(columns), columns, totals)
        penalty = self.stiffness / 2 * beyond.square()
        by_kl = share_of_step(penalty, pull_R, self._measure_change(columns), columns, totals)
        tally = Tally(total=kl * len(columns), count=len(columns))
        return LossResult(loss=by_contrast + by_kl, metrics={"extra/kl_bound": tally})

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
            level = self.tau * (hard.logsumexp(0) - math.log(len(failed)))
            if self.negatives == "mean":
                level, hard = score_R[failed].mean(), hard * 0
            value = value - (score_R[solved].mean() - level)
            slope_R[solved] = -1 / len(solved)
            slope_R[failed] = hard.softmax(0)
        return value / max(totals.groups, 1), slope_R / max(totals.groups, 1)

    def _score(self, columns: TokenColumns) -> Tensor:
        return columns.logp if self.score == "log_likelihood" else columns.log_ratio().exp()

    def _measure_change(self, columns: TokenColumns) -> Tensor:
        log_ratio_T = columns.log_ratio()
        return -log_ratio_T if self.kl == "difference" else k3(log_ratio_T)
