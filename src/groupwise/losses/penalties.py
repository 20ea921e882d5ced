"""Penalties: what is added to the loss of each token, times a weight. Axis: T tokens."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import NonNegativeFloat, PositiveFloat

from groupwise.losses.token_columns import ENTROPY, OLD_LOGP, REFERENCE_LOGP, Tensor, TokenColumns, Unit
from groupwise.parts.part import Part


class Kl(Part, slot="penalty"):
    """Stay close to the reference policy; pi is the current one.

        d = logp_ref - logp;   k1 = -d;   k2 = d^2 / 2;   k3 = exp(d) - d - 1

    All three estimate KL(pi || ref) from a token drawn from pi. Training uses their *gradients*, which differ:

        gradient="own"                k1: zero on average    k2: grad KL(pi || ref)    k3: grad KL(ref || pi)
        gradient="straight_through"   the value of the estimator with the gradient of k2, so grad KL(pi || ref)
        gradient="unbiased"           of rho * k, rho = exp(logp - logp_old): for k1 and k3 grad KL(pi || ref), even
                                      where the tokens were drawn from the old policy

    Source: Schulman 2020, "Approximating KL divergence"; GRPO (arXiv:2402.03300, eq. 4) adds k3; the second is verl's
    `+`, the third DeepSeek-V3.2's. Choices: d is clamped to +-20 and k3 capped at 10, as in verl. Beyond these bounds
    the token has no gradient of its own; for k3 this is at d > 2.6. `cap=inf` removes the second bound.
    """

    estimator: Literal["k1", "k2", "k3"] = "k3"
    """How the divergence is estimated at a token."""
    weight: NonNegativeFloat = 0.001
    """How much of it is added to the loss; at 0 no reference policy is needed."""
    gradient: Literal["own", "straight_through", "unbiased"] = "own"
    """What is differentiated."""
    clamp: PositiveFloat = 20.0
    """Largest log-ratio, in absolute value."""
    cap: PositiveFloat = 10.0
    """Largest value of k3."""

    @property
    def needs(self) -> frozenset[str]:
        return frozenset({REFERENCE_LOGP, OLD_LOGP} if self.gradient == "unbiased" else {REFERENCE_LOGP})

    def __call__(self, columns: TokenColumns) -> Tensor:
        d_T = (columns.require(REFERENCE_LOGP) - columns.logp).clamp(-self.clamp, self.clamp)
        k2_T = d_T.square() / 2
        if self.estimator == "k1":
            value_T = -d_T
        elif self.estimator == "k2":
            value_T = k2_T
        else:
            value_T = k3(d_T).clamp(max=self.cap)
        if self.gradient == "straight_through":
            return value_T.detach() + (k2_T - k2_T.detach())
        if self.gradient == "unbiased":
            return columns.log_ratio(self.clamp).exp() * value_T
        return value_T


class EntropyBonus(Part, slot="penalty"):
    """Reward uncertainty: subtract the entropy of each token's distribution from the loss.

        l = -weight * H(pi(. | context of the token))

    Source: A3C (Mnih et al. 2016, arXiv:1602.01783). The gradient runs through the whole distribution, not only through
    the sampled token.
    """

    needs: ClassVar[frozenset[str]] = frozenset({ENTROPY})
    weight: NonNegativeFloat = 0.001
    """How much of it is subtracted from the loss; at 0 no entropy is needed."""

    def __call__(self, columns: TokenColumns) -> Tensor:
        return -columns.require(ENTROPY)


class EntropyShare(Part, slot="penalty"):
    """Reward uncertainty in right answers: each rollout's entropy is weighted by its share.

        l = -weight * share * sg(rho) * H(pi(. | context of the token)),   rho = exp(logp - logp_old)

    The share is the named column `entropy_share`: 0 for wrong rollouts, with mean 1 over a group that has right ones
    (the scorer `right_diversity` writes it).

    Source: ours, after DSDR (2026, arXiv:2602.19895, from notes): entropy with importance weights, averaged over time
    and distributed among right answers. Its weight was not found. The aggregate averages over tokens and rollouts: with
    `sequence_mean` and one response per rollout, each group adds the sum of w_i times the mean over i's tokens.
    """

    needs: ClassVar[frozenset[str]] = frozenset({ENTROPY, OLD_LOGP})
    columns: ClassVar[frozenset[str]] = frozenset({"entropy_share"})
    weight: NonNegativeFloat = 0.001
    """How much of it is subtracted from the loss; at 0 no entropy is needed."""
    clamp: PositiveFloat = 20.0
    """Largest log-ratio, in absolute value."""

    def __call__(self, columns: TokenColumns) -> Tensor:
        importance_T = columns.log_ratio(self.clamp).detach().exp()
        return -columns.column("entropy_share") * importance_T * columns.require(ENTROPY)


class SquaredChange(Part, slot="penalty"):
    """Stay close to the policy that sampled: the square of each token's log-ratio.

        l = weight * (logp - logp_old)^2

    Source: OPMD as Kimi k1.5 (2025, arXiv:2501.12599) regularizes and "Group-relative REINFORCE is secretly an
    off-policy algorithm" (2025, arXiv:2509.24203) writes it, tau = `weight`; the factor 1/2 of the derivation is in the
    weight. Choice: per token; the log-ratio is clamped to +-`clamp`, as in the other parts, and has no gradient beyond.
    """

    needs: ClassVar[frozenset[str]] = frozenset({OLD_LOGP})
    weight: NonNegativeFloat = 0.1
    """How much of it is added to the loss."""
    clamp: PositiveFloat = 20.0
    """Largest log-ratio, in absolute value."""

    def __call__(self, columns: TokenColumns) -> Tensor:
        return columns.log_ratio(self.clamp).square()


class SquaredDrift(Part, slot="penalty"):
    """Stay close to the policy that sampled: the square of the log-ratio of a whole response.

        l_t = weight * (sum over the answer's n tokens of logp - logp_old)^2 / (2 n)

    With the mean over responses, then tokens, it is weight / 2 times the square over n, as published.

    Source: BCPG-NSA (2025, arXiv:2505.14403, eqs. 6 and 7, from notes), tau = `weight`. **Choices.** The response is
    that of a step, and its tokens that train count. A token's log-ratio is clamped to +-`clamp`, as in the other parts;
    the sum is not.
    """

    needs: ClassVar[frozenset[str]] = frozenset({OLD_LOGP})
    unit: ClassVar[Unit] = "step"
    weight: NonNegativeFloat = 0.001
    """How much of it is added to the loss."""
    clamp: PositiveFloat = 20.0
    """Largest log-ratio of a token, in absolute value."""

    def __call__(self, columns: TokenColumns) -> Tensor:
        change_T = columns.log_ratio(self.clamp)
        answers = columns.units(self.unit)
        return answers.sum(change_T).square() / (2 * answers.size(change_T))


def k3(d_T: Tensor) -> Tensor:
    """The low-variance estimate exp(d) - d - 1: never negative, exact for tiny d."""
    return d_T.expm1() - d_T
