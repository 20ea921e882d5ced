from __future__ import annotations

from typing import ClassVar

from pydantic import NonNegativeFloat, PositiveFloat

from groupwise.losses import PAIRS, PairLoss, PairSums, PairTerms, Tensor, softplus
from groupwise.methods.grpo import grpo
from groupwise.methods.method import method
from groupwise.methods.terms import Pairs, choose_pairs
from groupwise.parts import Algorithm, Finite


@method
def simpo(*, beta: Finite = 2.5, margin: Finite = 0.55, pairs: Pairs = "best_against_worst") -> Algorithm:
    """SimPO (Meng et al. 2024, arXiv:2405.14734): the better rollout becomes more likely per token than the worse one.

    loss = mean over pairs of -log sigmoid(z),   z = beta * (mean logp of the winner - of the loser - margin)

    Choices: no reference. The release's gamma is beta * margin. Pairs as for `dpo`.
    """
    return Algorithm(advantage=grpo().advantage, pairing=choose_pairs(pairs), loss=Simpo(beta=beta, margin=margin))


class Simpo(PairLoss, slot="loss"):
    """Make the better rollout of each pair more likely, per token, than the worse one, by a margin.

        loss = sum_p weight_p * -log sigmoid( beta * (mean logp of the winner - mean logp of the loser) - gamma )
               / sum_p weight_p,           gamma = beta * margin

    The mean is over all sampled tokens of a rollout, or of a step if the pairing compares steps. The slope by the
    log-prob of a winner's token is -weight_p / (sum of weights) * beta / L * sigmoid(gamma - beta * gap); a loser's has
    the other sign. The first pass finds the gaps. So the gradient is a sum over samples, and the two need not be in one
    micro-batch.

    Source: SimPO (Meng et al. 2024, arXiv:2405.14734); released values are beta 2 to 10 and margins of 0.1 to 0.8.
    Choices: pairs come from the slot `pairing` of the algorithm, not from a dataset; advantages are not read. Published
    runs are offline; here the policy has just sampled the pairs.
    """

    needs: ClassVar[frozenset[str]] = frozenset({PAIRS})
    beta: PositiveFloat = 2.5
    """Scale of the difference within a pair."""
    margin: NonNegativeFloat = 0.55
    """How much more likely a winner's token should be, in nats (the release's gamma / beta)."""

    def lose(self, logp_M: Tensor, summary: PairSums, pairs: PairTerms) -> Tensor:
        gap_P = pairs.contrast(logp_M / summary.tokens.clamp(min=1))
        return softplus(self.beta * (self.margin - gap_P))
