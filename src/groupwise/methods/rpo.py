from __future__ import annotations

from groupwise.losses import PairSums, PairTerms, Tensor
from groupwise.methods.dpo import Dpo
from groupwise.methods.grpo import grpo
from groupwise.methods.method import method
from groupwise.methods.terms import Pairs, choose_pairs
from groupwise.parts import Algorithm, Finite, NotNegative, Positive


@method
def rpo(*, beta: Finite = 0.01, eta: Finite = 0.005, pairs: Pairs = "best_against_worst") -> Algorithm:
    """RPO (Liu et al. 2024, arXiv:2405.16436): DPO that also imitates the winners.

    loss = mean over pairs of -log sigmoid(z) - eta * mean logp of the winner,   z = as for DPO

    Choices: imitation is a mean over the winner's tokens. Pairs as for `dpo`. eta = 0 is DPO.
    """
    return Algorithm(advantage=grpo().advantage, pairing=choose_pairs(pairs), loss=Rpo(beta=beta, eta=eta))


class Rpo(Dpo, slot="loss"):
    """DPO that also imitates the winners, so the loss cannot fall by making both less likely.

        loss = DPO(beta) + eta * sum_p weight_p * -(mean logp of the winner) / sum_p weight_p

    Source: RPO (Liu et al. 2024, arXiv:2405.16436, "Provably mitigating overoptimization in RLHF"), beta 0.01, eta
    0.005. Choices: the mean over a winner's tokens, as in the source's runs; the rest as for `dpo`.
    """

    beta: Positive = 0.01
    """Scale of the difference within a pair."""
    eta: NotNegative = 0.005
    """How much of the imitation is added; 0 = DPO."""

    def _pull_winners(self, logp_M: Tensor, summary: PairSums, pairs: PairTerms) -> Tensor:
        mean_M = logp_M / summary.tokens.clamp(min=1)
        return -self.eta * mean_M.index_select(0, pairs.winner)
