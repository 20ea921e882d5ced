from __future__ import annotations

from typing import ClassVar

from pydantic import PositiveFloat

from groupwise.losses import PolicyLoss, SequenceMean, Tensor, TokenColumns, TokenLoss, TokenRatio
from groupwise.methods.grpo import grpo
from groupwise.methods.method import method
from groupwise.parts import Algorithm, Finite, Part


@method
def sapo(*, tau_positive: Finite = 1.0, tau_negative: Finite = 1.05) -> Algorithm:
    """SAPO (2025, arXiv:2511.20347): GRPO with a soft gate, which reduces a token's gradient gradually, instead of a
    clip.

    l = -A * (4 / tau) * sigmoid(tau * (rho - 1)),   tau = tau_positive where A > 0, else tau_negative

    Choices: each answer counts the same. No KL.
    """
    surrogate = Sapo(tau_positive=tau_positive, tau_negative=tau_negative)
    return Algorithm(
        advantage=grpo().advantage, loss=PolicyLoss(ratio=TokenRatio(), surrogate=surrogate, aggregate=SequenceMean())
    )


class Sapo(Part, slot="surrogate"):
    """A soft gate instead of the clip: a token's gradient fades smoothly as its ratio leaves 1.

        l = -A * (4 / tau) * sigmoid(tau * (rho - 1)),   tau = tau_positive where A > 0, else tau_negative

    Source: SAPO (2025, arXiv:2511.20347); TRL and verl agree. Its slope in rho is sech^2(tau (rho - 1) / 2): 1 at rho =
    1, where the gradient is the policy gradient. One release weighs logp by the gate itself, which would double it. A =
    0 gives 0.
    """

    scales_with_credit: ClassVar[bool] = True
    is_trust_region: ClassVar[bool] = True
    tau_positive: PositiveFloat = 1.0
    """How fast the gradient of tokens with a positive advantage fades."""
    tau_negative: PositiveFloat = 1.05
    """How fast the gradient of tokens with a negative advantage fades."""

    def __call__(self, ratio_T: Tensor, columns: TokenColumns) -> TokenLoss:
        A_T = columns.advantage
        tau_T = A_T.new_full(A_T.shape, self.tau_negative).masked_fill(A_T > 0, self.tau_positive)
        return TokenLoss(loss=-A_T * (4 / tau_T) * (tau_T * (ratio_T - 1)).sigmoid())
