"""DPO (Rafailov et al. 2023, arXiv:2305.18290)."""

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
from groupwise.methods.method import recipe
from groupwise.methods.terms import Pairs, choose_pairs
from groupwise.parts.algorithm import Algorithm
from groupwise.parts.part import Finite, Positive


@recipe
def dpo(*, beta: Finite = 0.1, pairs: Pairs = "best_against_worst") -> Algorithm:
    """DPO (Rafailov et al. 2023, arXiv:2305.18290): the better of two attempts becomes likelier than the worse one.

    loss = mean over pairs of -log sigmoid(z),   z = beta * (log-ratio of the winner - log-ratio of the loser)

    Choices: a log-ratio is against the policy that the run started from, summed over all steps of an attempt. Pairs are
    the best and the worst attempt at each task, of those just sampled; `pairs="all"` takes every two whose returns
    differ, each task counting the same. A task whose attempts all did equally well has no pair.
    """
    return Algorithm(advantage=grpo().advantage, pairing=choose_pairs(pairs), loss=Dpo(beta=beta))


class Dpo(PairLoss, slot="loss"):
    """Make the better member of each pair likelier, against the reference, than the worse one.

        z_p  = beta * ( (logp - logp_ref of the winner) - (logp - logp_ref of the loser) ),   sums over tokens
        loss = sum_p weight_p * -log sigmoid(z_p) / sum_p weight_p

    The first pass finds each member's log-probs, so that winner and loser need not lie in one micro-batch.

    Source: DPO (Rafailov et al. 2023, arXiv:2305.18290), beta 0.1. Choices: pairs come from the slot `pairing`, not
    from a data set, and are those that the policy has just sampled; credit is not read. A member is an attempt with all
    its steps, or one step where the pairing says so. `per="pair"` divides by the number of pairs, so that small weights
    make a small loss, as StepORLM writes it; `reference=False` leaves the reference out.
    """

    beta: Positive = 0.1
    """How steeply a pair is told apart."""
    reference: bool = True
    """Whether log-probs are taken against the reference policy, or as they are."""
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
        """What each pair's loss has beside the comparison (P)."""
        return pairs.gap * 0
