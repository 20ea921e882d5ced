from __future__ import annotations

import math

import numpy as np
from pydantic import NonNegativeFloat

from groupwise.credit import EpisodeReturn, StepTrace, Sum, Term, list_rollouts
from groupwise.data.credit import Credit, Derivation
from groupwise.data.segments import BoolArray, Segments
from groupwise.data.step_table import StepTable
from groupwise.losses import Clip, Kl, PolicyLoss, TokenMean
from groupwise.methods.grpo import grpo
from groupwise.methods.method import method
from groupwise.parts import Algorithm, Count, Finite, Part, SignalPart
from groupwise.system.errors import ConfigError


@method
def srpo(*, k: Count = 4, best: Finite = 1.0) -> Algorithm:
    """SRPO (GREAM, 2025, arXiv:2510.20815, and its release): GRPO on graded answers, with a bonus for exact ones.

    A_i = (R_i - mean(R)) / (std(R) + 1e-6) + bonus_i;   bonus = what a hit adds to pass@k, see `pass_at_bonus`

    Choices: a rollout is exact if its return reaches `best`. The source's graded reward is the reward `ladder` of a run
    file, over step info of the environment; its dynamic sampling is the plan `top_up`. Clip 0.2 with a dual bound of
    10, mean over tokens, KL 0.001. If no rollout is exact, or too many are, it is GRPO.
    """
    return Algorithm(
        advantage=Sum(terms=(Term(weight=1.0, of=grpo().advantage), Term(weight=1.0, of=PassAtBonus(k=k, best=best)))),
        loss=PolicyLoss(surrogate=Clip(dual=10.0), aggregate=TokenMean(), penalties=(Kl(weight=0.001),)),
    )


class PassAtBonus(Part, slot="estimator"):
    """If few of a task's rollouts hit exactly, those get a bonus, and the others a small penalty.

        pass  = 1 - C(n - c, k) / C(n, k),   sig = sqrt(pass (1 - pass)),   c of n rollouts hit
        hit   = (1 - pass) / (sig + eps)
        miss  = (1 - pass - C(n - c - 1, k - 1) / C(n - 1, k - 1)) / (sig + eps)

    `pass` is the chance that one of k rollouts, drawn among the n, hits. Each value is what a rollout adds to it beyond
    a random one, in units of its standard deviation.

    Source: SRPO of GREAM (2025, arXiv:2510.20815) and its release, k 4, where it is added to a graded advantage.
    Choices: a rollout hits if `of`, mean over its steps, reaches `best`. All get 0 if none or all hit, or if too many
    hit for k rollouts to miss (n - c < k). A task with one rollout gets 0 and is not compared.
    """

    of: SignalPart = EpisodeReturn()
    """The number that says whether a rollout hit."""
    best: Finite = 1.0
    """The value of a hit."""
    k: Count = 4
    """Rollouts in the chance `pass`."""
    eps: NonNegativeFloat = 1e-6
    """Added to the standard deviation."""

    def check_rollouts(self, rollouts: int) -> None:
        if rollouts < self.k:
            raise ConfigError(
                f"pass_at_bonus: k = {self.k} needs at least {self.k} rollouts per task, but each task gets "
                f"{rollouts}; raise rollout.group_size, or lower k"
            )

    def __call__(self, table: StepTable) -> Credit:
        hit_A = self._find_hits(table)
        tasks = Segments.of(table.task[table.rollouts.first])
        hits_M = tasks.sum(hit_A.astype(np.float64)).astype(np.int64)
        counts = zip(tasks.size.tolist(), hits_M.tolist(), strict=True)
        bonus_M = [_find_bonus(n, c, self.k, self.eps) for n, c in counts]
        of_hit, of_miss = (np.array([pair[side] for pair in bonus_M], dtype=np.float64) for side in (0, 1))
        bonus_A = np.where(hit_A, tasks.spread(of_hit), tasks.spread(of_miss))
        values, compared = bonus_A[table.rollout], (tasks.size > 1)[table.task]
        return Credit.of(table, StepTrace(values=values, compared=compared, part=self))

    def _find_hits(self, table: StepTable) -> BoolArray:
        """Which rollouts hit (A). A sum of rewards may miss the best by its last digit."""
        enough = self.best - 1e-9 * max(1.0, abs(self.best))
        is_hit: BoolArray = table.rollouts.mean(table.ask_once(self.of)) >= enough
        return is_hit

    def meets_others(self, table: StepTable, trace: StepTrace) -> BoolArray:
        """All steps that are compared: whole rollouts are (S)."""
        return trace.compared

    def derive(self, table: StepTable, trace: StepTrace, step: int) -> Derivation:
        hits = self._find_hits(table).tolist()
        own = list_rollouts(table, hits, step)
        n, c, k, value = len(own), sum(hit > 0 for _, hit in own), self.k, 0.0
        if 0 < c < n and n - c >= k:
            misses = math.comb(n - c, k) / math.comb(n, k)
            without = 0.0 if hits[table.rollout[step]] else math.comb(n - c - 1, k - 1) / math.comb(n - 1, k - 1)
            value = (misses - without) / (math.sqrt(misses * (1 - misses)) + self.eps)
        return Derivation(value=value, formula=f"{c} of {n} hit, k = {k}: {value:.6g}", members=own)


def _find_bonus(n: int, c: int, k: int, eps: float) -> tuple[float, float]:
    if not 0 < c < n or n - c < k:
        return 0.0, 0.0
    misses = math.comb(n - c, k) / math.comb(n, k)
    deviation = math.sqrt(misses * (1 - misses)) + eps
    return misses / deviation, (misses - math.comb(n - c - 1, k - 1) / math.comb(n - 1, k - 1)) / deviation
