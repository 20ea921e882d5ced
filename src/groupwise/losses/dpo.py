"""Preference losses against a reference policy: DPO, and what was made of it. Axes: T tokens, M members, P pairs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, ClassVar

from pydantic import Field

from groupwise.core.parts.part import Part
from groupwise.core.totals import Totals
from groupwise.losses.pair_sums import PairSums, PairTerms, PerPair, measure_pairs, share_of_pairs, softplus
from groupwise.losses.policy_loss import LossResult
from groupwise.losses.token_columns import PAIRS, REFERENCE_LOGP, TokenColumns, Unit

if TYPE_CHECKING:
    from torch import Tensor

Steepness = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Weight = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class Dpo(Part, slot="loss"):
    """Make the better member of each pair likelier, against the reference, than the worse one.

        z_p  = beta * ( (logp - logp_ref of the winner) - (logp - logp_ref of the loser) ),   sums over tokens
        loss = sum_p weight_p * -log sigmoid(z_p) / sum_p weight_p

    The first pass finds each member's log-probs, so that winner and loser need not lie in one micro-batch.

    Source: DPO (Rafailov et al. 2023, arXiv:2305.18290), beta 0.1. Choices: pairs come from the slot `pairing`, not
    from a data set, and are those that the policy has just sampled; credit is not read. A member is an attempt with all
    its steps, or one step where the pairing says so. `per="pair"` divides by the number of pairs, so that small weights
    make a small loss, as StepORLM writes it; `reference=False` leaves the reference out.
    """

    unit: ClassVar[Unit] = "sample"
    beta: Steepness = 0.1
    """How steeply a pair is told apart."""
    reference: bool = True
    """Whether log-probs are taken against the reference policy, or as they are."""
    per: PerPair = "weight"
    """What the terms of all pairs are divided by: the sum of their weights, or their number."""

    @property
    def needs(self) -> frozenset[str]:
        """What it reads beyond the basics."""
        return frozenset({PAIRS, REFERENCE_LOGP} if self.reference else {PAIRS})

    def first_pass(self, columns: TokenColumns, totals: Totals) -> PairSums:
        """Log-probs and tokens of each member of a pair."""
        columns = columns.select_trained()
        ref_T = columns.require(REFERENCE_LOGP) if self.reference else columns.logp * 0
        return PairSums.of(columns, totals, logp=columns.logp, ref=ref_T)

    def __call__(self, columns: TokenColumns, totals: Totals, summary: PairSums) -> LossResult:
        columns = columns.select_trained()
        pairs = PairTerms.of(totals, columns.logp.detach(), self.per)

        def value_of(logp_M: Tensor) -> Tensor:
            z_P = self.beta * pairs.contrast(logp_M - summary.sums["ref"]) - self._margins(pairs)
            return (pairs.weight * (softplus(-z_P) + self._pull_winners(logp_M, summary, pairs))).sum()

        loss = share_of_pairs(value_of, summary, columns, totals)
        return LossResult(loss=loss, metrics=measure_pairs(summary, columns, totals))

    def _margins(self, pairs: PairTerms) -> Tensor:
        """How far apart each pair should be (P)."""
        return pairs.gap * 0

    def _pull_winners(self, logp_M: Tensor, summary: PairSums, pairs: PairTerms) -> Tensor:
        """What each pair's loss has beside the comparison (P)."""
        return pairs.gap * 0


class Rpo(Dpo, slot="loss"):
    """DPO that also imitates the winners, so that it cannot win by making both less likely.

        loss = DPO(beta) + eta * sum_p weight_p * -(mean logp of the winner) / sum_p weight_p

    Source: RPO (Liu et al. 2024, arXiv:2405.16436, "Provably mitigating overoptimization in RLHF"), beta 0.01, eta
    0.005. Choices: the mean over a winner's tokens, as in the source's runs; the rest as for `dpo`.
    """

    beta: Steepness = 0.01
    """How steeply a pair is told apart."""
    eta: Weight = 0.005
    """How much of the imitation is added; 0 = DPO."""

    def _pull_winners(self, logp_M: Tensor, summary: PairSums, pairs: PairTerms) -> Tensor:
        mean_M = logp_M / summary.tokens.clamp(min=1)
        return -self.eta * mean_M.index_select(0, pairs.winner)


class StepApo(Dpo, slot="loss"):
    """DPO between steps whose margin is how much better the winner's value is.

        z_p = beta * ( (logp - logp_ref of the winner) - (logp - logp_ref of the loser) ) - alpha * (Q_winner - Q_loser)

    Source: Step-APO of CPL (Wang et al. 2024, arXiv:2409.08642, "CPL: Critical plan step learning"), beta 0.3, alpha 1,
    read in its code. Choices: Q is what the pairing compares (`Pair.gap`); the source has it from a tree search, here
    it is the return of the attempts that went on from the state. Meant for the pairing `siblings`.
    """

    beta: Steepness = 0.3
    """How steeply a pair is told apart."""
    alpha: Weight = 1.0
    """How much of the difference in value is the margin; 0 = DPO."""

    def _margins(self, pairs: PairTerms) -> Tensor:
        return self.alpha * pairs.gap
