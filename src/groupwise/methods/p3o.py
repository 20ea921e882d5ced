from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import PositiveFloat

from groupwise.losses import OLD_LOGP, PAIRS, AllPairs, PairLoss, PairSums, PairTerms, Tensor, TokenColumns
from groupwise.methods.method import method
from groupwise.methods.rloo import rloo
from groupwise.methods.terms import take_kl_off_answers
from groupwise.parts import Algorithm, Finite


@method
def p3o(
    *, clip: Literal["separate", "joint", "none"] = "none", width: Finite = 0.2, kl_in_reward: Finite = 0.0
) -> Algorithm:
    """P3O (Wu et al. 2023, arXiv:2310.00212; its clips are ours): the two rollouts of a pair move apart by their
    difference.

    grad = mean over pairs of -(R_w - R_l) / 2 * grad(logp of the winner - logp of the loser);   A_i = as for RLOO

    Choices: all pairs of a task; each pair counts the same. Without a clip it is the published gradient. On-policy,
    that is RLOO's times (n - 1) / 2 for a task of n rollouts, a constant if all tasks have equally many. The source
    clips too, but its form was not found: `clip="separate"` and `"joint"` are reconstructed, see the loss `p3o`, and
    neither is the default. The source subtracts a KL to the reference from the reward; `kl_in_reward=0.1` does this, as
    for RLOO, and the default leaves it out. Log-probs are summed over all steps of a rollout.
    """
    return Algorithm(
        advantage=rloo().advantage,
        pairing=AllPairs(counts="pair"),
        loss=P3o(clip=clip, width=width),
        **take_kl_off_answers(kl_in_reward),
    )


LARGEST_LOG_RATIO = 20.0
"""Log-ratios of whole members are clamped to this before exp, as those of tokens are."""


class P3o(PairLoss, slot="loss"):
    """Move each pair apart by how much better the winner is: the level of the rewards does not matter.

        h = (R_winner - R_loser) / 2;   r = sum over tokens of logp - logp_old;   D = logp of winner - logp of loser

        none       l = -h * sg(exp(r_winner + r_loser)) * D
        separate   l = max(-h rho_w, -h clip(rho_w)) + max(h rho_l, h clip(rho_l)),   rho = exp(r), clip to 1 +- width
        joint      l = max(-h W D, -h W clip(D, D_old +- joint_width)),   W = sg(clip(exp(r_winner + r_loser)))

        loss = sum_p weight_p * l_p / sum_p weight_p

    Source: P3O (Wu et al. 2023, arXiv:2310.00212). The gradient without a clip, h * grad D, is published; the two
    clipped forms are ours, after summaries. With several optimizer steps per update, use a clip. Rewards are those that
    the pairing compares (`Pair.gap`). Log-ratios are clamped to +-20.
    """

    needs: ClassVar[frozenset[str]] = frozenset({PAIRS, OLD_LOGP})
    clip: Literal["separate", "joint", "none"] = "none"
    """What bounds a pair's step; `none` is the published form."""
    width: PositiveFloat = 0.2
    """How far from 1 a ratio may go."""
    joint_width: PositiveFloat = 0.2
    """`joint`: how far D may go from where it was, in nats."""

    def list_sums(self, columns: TokenColumns) -> dict[str, Tensor]:
        return {"old": columns.require(OLD_LOGP)}

    def lose(self, logp_M: Tensor, summary: PairSums, pairs: PairTerms) -> Tensor:
        old_M, half_P = summary.sums["old"], pairs.gap / 2
        change_M = (logp_M - old_M).clamp(-LARGEST_LOG_RATIO, LARGEST_LOG_RATIO)
        D_P, old_P = pairs.contrast(logp_M), pairs.contrast(old_M)
        winner_P, loser_P = change_M.index_select(0, pairs.winner), change_M.index_select(0, pairs.loser)
        low, high = 1 - self.width, 1 + self.width
        if self.clip == "separate":
            praise_P, blame_P = winner_P.exp(), loser_P.exp()
            return (-half_P * praise_P).maximum(-half_P * praise_P.clamp(low, high)) + (half_P * blame_P).maximum(
                half_P * blame_P.clamp(low, high)
            )
        joint_P = (winner_P + loser_P).detach().clamp(-LARGEST_LOG_RATIO, LARGEST_LOG_RATIO).exp()
        if self.clip == "none":
            return -half_P * joint_P * D_P
        pull_P = -half_P * joint_P.clamp(low, high)
        near_P = D_P.clamp(old_P - self.joint_width, old_P + self.joint_width)
        return (pull_P * D_P).maximum(pull_P * near_P)
