"""Generalised advantages of tokens, with values that were measured instead of learnt.

Axes: S steps of the table, K sampled tokens of all steps.
"""

from __future__ import annotations

import numpy as np

from groupwise.advantages.token_credit.answer_segments import read_segments
from groupwise.advantages.token_credit.segment_credit import ENDS, VALUES, read_comparison
from groupwise.advantages.token_credit.token_return import Discount, ReturnTrace, add_later, place_rewards
from groupwise.core.credit import Credit
from groupwise.core.parts.part import Part
from groupwise.core.segments import FloatArray
from groupwise.core.step_table import StepTable
from groupwise.core.token_credit import TokenCredit
from groupwise.core.token_table import TokenTable


class TokenGae(Part, slot="token_credit"):
    """Generalised advantages of tokens: what a token brought beyond its value, and a fading share of what came after.

        delta_k = r_k + gamma * V_(k+1) - V_k,   A_k = delta_k + gamma * lam * A_(k+1)

    Source: GAE (Schulman et al. 2015, arXiv:1506.02438), as in PPO. **Choices.** There is no critic: values are those
    that the measure `segment_values` writes (or any that writes `segment_ends` and `segment_values`), and a token has
    the value of its segment's beginning. The beginning of an answer has the baseline of the estimator, which is
    `relative` and must not divide by a scale; without the columns an answer is one segment. Nothing is expected after
    the end of an attempt, even one that was cut off. With gamma = lam = 1, credit is what the attempt still earns less
    V; where all values are 0, it is `token_return`. With gamma 1, lam 0 gives all credit of a segment to its last
    token.
    """

    gamma: Discount = 1.0
    """Discount from one token to the next."""
    lam: Discount = 0.95
    """Share of the next token's advantage that a token has too."""

    def __call__(self, table: StepTable, credit: Credit, tokens: TokenTable) -> TokenCredit:
        value = _read_values(table, credit, tokens)
        attempt, following = table.attempt[tokens.step], np.zeros(len(tokens))
        following[:-1] = np.where(attempt[1:] == attempt[:-1], value[1:], 0.0)
        surprise = place_rewards(table, tokens) + self.gamma * following - value
        share = self.gamma * self.lam
        return TokenCredit(
            values=add_later(surprise, table, tokens, share=share),
            trains=np.ones(len(tokens), dtype=np.bool_),
            trace=ReturnTrace(part=self, amounts=surprise, share=share),
        )


def _read_values(table: StepTable, credit: Credit, tokens: TokenTable) -> FloatArray:
    """The value of each token (K): that of its segment's beginning."""
    comparison = read_comparison(table, credit, "token_gae")
    baseline = comparison.signal - comparison.values  # also where nobody was compared with
    if ENDS not in table.extra or not len(tokens):
        return baseline[tokens.step]
    segments = read_segments(table, tokens, ends=ENDS, numbers=VALUES, more=-1)
    by_step = zip(segments.ends, segments.numbers, baseline.tolist(), strict=True)
    return np.array([value for ends, inner, first in by_step if ends for value in (first, *inner)])[segments.of_token]
