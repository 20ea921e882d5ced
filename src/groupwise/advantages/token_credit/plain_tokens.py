"""Plain ways to share the credit of a step among its tokens: discounted from the end, or to the first ones alone.

Axis: K sampled tokens of all steps.
"""

from __future__ import annotations

from typing import Annotated

import numpy as np
from pydantic import Field

from groupwise.core.credit import Credit
from groupwise.core.parts.part import Part
from groupwise.core.step_table import StepTable
from groupwise.core.token_credit import TokenCredit, TokenTrace
from groupwise.core.token_table import TokenTable


class DiscountedTokens(Part, slot="token_credit"):
    """Give the last token of a response the step's credit, and each token before it gamma times that of the next.

        A_k = gamma^(n - 1 - k) * A,   k = 0 .. n - 1

    Source: the return of a token in REINFORCE++ (arXiv:2501.03262) and PPO, where the reward stands on the last token
    of a response and is discounted from token to token; the published setting is gamma 1. Choices: it is the credit
    that is discounted, after its comparison, and within one response: from step to step the estimator discounts.
    Gamma 0 gives credit to the last token alone (0^0 = 1).
    """

    gamma: Annotated[float, Field(ge=0, le=1)] = 1.0
    """Discount from one token to the next."""

    def __call__(self, table: StepTable, credit: Credit, tokens: TokenTable) -> TokenCredit:
        weight = np.power(self.gamma, tokens.step_length - 1 - tokens.position, dtype=np.float64)
        return TokenCredit(
            values=weight * credit.values[tokens.step],
            trains=np.ones(len(tokens), dtype=np.bool_),
            trace=TokenTrace(weight=weight, part=self),
        )


class FirstTokens(Part, slot="token_credit"):
    """Train on the first tokens of each response only; they have the credit of their step.

        token k trains where k < count

    Source: ours, a plain mask: long responses train at the cost of short ones, since what follows the last token that
    trains is not computed. Choice: a response that is shorter trains whole.
    """

    count: Annotated[int, Field(ge=1)]
    """How many tokens of a response train."""

    def __call__(self, table: StepTable, credit: Credit, tokens: TokenTable) -> TokenCredit:
        return TokenCredit(
            values=credit.values[tokens.step],
            trains=tokens.position < self.count,
            trace=TokenTrace(weight=np.ones(len(tokens)), part=self),
        )

    def describe_mask(self, table: StepTable, credit: Credit, tokens: TokenTable, token: int) -> str:
        """Which tokens of its response train instead."""
        first = tokens.num_forced(int(tokens.step[token]))
        return f"only tokens {first} to {first + self.count - 1} of a response do"
