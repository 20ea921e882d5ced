from __future__ import annotations

from groupwise.losses import (
    PAIRS,
    REFERENCE_LOGP,
    PairLoss,
    PairSums,
    PairTerms,
    PerPair,
    Tensor,
    TokenColumns,
    softplus,
)
from groupwise.methods.grpo import grpo
from groupwise.methods.method import method
from groupwise.methods.terms import Pairs, choose_pairs
from groupwise.parts import Algorithm, Finite, Positive


@method
def dpo(*, beta: Finite = 0.1, pairs: Pairs = "best_against_worst") -> Algorithm:
    """DPO (Rafailov et al. 2023, arXiv:2305.18290): the better of two rollouts becomes more likely than the worse one.

    loss = mean over pairs of -log sigmoid(z),   z = beta * (log-ratio of the winner - log-ratio of the loser)

    Choices: a log-ratio is relative to the policy at the start of the run, summed over all steps of a rollout. Pairs
    are the best and the worst rollout of each task, of those just sampled. `pairs="all"` takes every two whose returns
    differ, with equal weight per task. A task whose rollouts all did equally well has no pair.
    """
    return Algorithm(advantage=grpo().advantage, pairing=choose_pairs(pairs), loss=Dpo(beta=beta))


class Dpo(PairLoss, slot="loss"):
    """Make the better member of each pair more likely, relative to the reference, than the worse one.

        z_p  = beta * ( (logp - logp_ref of the winner) - (logp - logp_ref of the loser) ),   sums over tokens
        loss = sum_p weight_p * -log sigmoid(z_p) / sum_p weight_p

    The first pass finds each member's log-probs, so winner and loser need not be in one micro-batch.

    Source: DPO (Rafailov et al. 2023, arXiv:2305.18290), beta 0.1. Choices: pairs come from the slot `pairing`, not
    from a dataset, and were just sampled by the policy; advantages are not read. A member is a rollout with all its
    steps, or one step if the pairing says so. `per="pair"` divides by the number of pairs, so small weights make a
    small loss, as StepORLM writes it; `reference=False` leaves the reference out.
    """

    beta: Positive = 0.1
    """Scale of the difference within a pair."""
    reference: bool = True
    """Whether log-probs are relative to the reference policy."""
    per: PerPair = "weight"
    """What the terms of all pairs are divided by: the sum of their weights, or their number."""

    @property
    def needs(self) -> frozenset[str]:
        return frozenset({PAIRS, REFERENCE_LOGP} if self.reference else {PAIRS})

    def list_sums(self, columns: TokenColumns) -> dict[str, Tensor]:
        return {"ref": columns.require(REFERENCE_LOGP) if self.reference else columns.logp * 0}

    def choose_divisor(self) -> PerPair:
        return self.per

    def lose(self, logp_M: Tensor, summary: PairSums, pairs: PairTerms) -> Tensor:
        z_P = self.beta * pairs.contrast(logp_M - summary.sums["ref"]) - self._margins(pairs)
        return softplus(-z_P) + self._pull_winners(logp_M, summary, pairs)

    def _margins(self, pairs: PairTerms) -> Tensor:
        return pairs.gap * 0

    def _pull_winners(self, logp_M: Tensor, summary: PairSums, pairs: PairTerms) -> Tensor:
        """A further term of each pair's loss (P)."""
        return pairs.gap * 0
