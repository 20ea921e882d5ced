"""Tokens that good and bad answers share, and answers that are too unsure: GTPO.

Axes: S steps of the table, K sampled tokens of all steps.
"""

from __future__ import annotations

import math
from typing import Annotated, ClassVar

import numpy as np
from pydantic import Field

from groupwise.advantages.token_credit.answer_traces import ConflictTrace
from groupwise.advantages.token_credit.entropy_memories import INITIAL_ENTROPY, UNKNOWN, InitialEntropy
from groupwise.core.column_checks import to_numbers
from groupwise.core.credit import Credit
from groupwise.core.parts.part import Part
from groupwise.core.segments import BoolArray
from groupwise.core.step_table import StepTable
from groupwise.core.token_credit import TokenCredit
from groupwise.core.token_table import TokenTable

Weight = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class ConflictTokens(Part, slot="token_credit"):
    """Where good and bad answers begin or end alike, reward those tokens in the good and spare them in the bad ones.

        A_t = delta * (A - entropy_weight * H) * lambda_t,   H = mean entropy of the answer's tokens
        delta = 0 where H > max_entropy and the initial policy's mean H < max_entropy, else 1
        lambda_t = boost in an answer with A > 0, 0 in one with A < 0, where t is a conflict token; else 1

    A conflict token stands, by position and id, in an answer with A > 0 and in one with A < 0 of its group, and so do
    all tokens before it; the same is done from the end of the answers, and the two factors are multiplied.

    Source: GTPO (arXiv:2508.03772), formula of its code's readme. **Choices.** max_entropy is the formula's ln 2 (the
    release drops every answer above 0.7). A group is the steps of one index at a task. The initial policy's entropy is
    that of the first update's answers, kept as a memory; a table without one is taken for the first update. An answer
    with delta 0 has credit 0 and still counts in denominators. The release also divides by an answer's number of
    conflict tokens (`divides_by_conflicts`). An answer with A = 0 has no conflict tokens; leave groups without a spread
    to a filter.
    """

    needs_entropy: ClassVar[bool] = True
    boost: Weight = 2.0
    """Weight of a conflict token of a good answer."""
    entropy_weight: Weight = 0.1
    """What a nat of an answer's mean entropy costs: gamma."""
    max_entropy: Annotated[float, Field(gt=0, allow_inf_nan=False)] = math.log(2)
    """Mean entropy above which an answer has no credit."""
    divides_by_conflicts: bool = False
    """Whether the credit of an answer is divided by its number of conflict tokens, as the release does."""

    def __call__(self, table: StepTable, credit: Credit, tokens: TokenTable) -> TokenCredit:
        length = np.bincount(tokens.step, minlength=len(table))
        entropy = np.bincount(tokens.step, weights=tokens.column("entropy", table), minlength=len(table))
        mean_entropy = np.divide(entropy, length, out=np.zeros(len(table)), where=length > 0)
        initial = float(mean_entropy[length > 0].mean()) if length.any() else 0.0
        if INITIAL_ENTROPY in table.extra and len(table):
            known = float(to_numbers(INITIAL_ENTROPY, table.column(INITIAL_ENTROPY))[0])
            initial = initial if known == UNKNOWN else known
        forward, backward = (find_conflicts(table, credit, tokens, end=end) for end in ("first", "last"))
        good = (credit.values > 0)[tokens.step]
        factor = np.where(forward, np.where(good, self.boost, 0.0), 1.0)
        factor = factor * np.where(backward, np.where(good, self.boost, 0.0), 1.0)
        if self.divides_by_conflicts:
            conflicts = np.bincount(tokens.step, weights=forward | backward, minlength=len(table))
            factor = factor / np.maximum(conflicts, 1.0)[tokens.step]
        value = np.where(
            (mean_entropy > self.max_entropy) & (initial < self.max_entropy),
            0.0,
            credit.values - self.entropy_weight * mean_entropy,
        )
        return TokenCredit(
            values=factor * value[tokens.step],
            trains=np.ones(len(tokens), dtype=np.bool_),
            trace=ConflictTrace(part=self, initial=initial),
        )

    def start(self, *, seed: int) -> InitialEntropy:
        """Begin with no answer seen; nothing here is random."""
        return InitialEntropy()


def find_conflicts(table: StepTable, credit: Credit, tokens: TokenTable, *, end: str) -> BoolArray:
    """Which tokens (K) lie in the unbroken run of conflict tokens from the first, or from the last, of their answer."""
    place = tokens.position if end == "first" else tokens.step_length - 1 - tokens.position
    sign = np.sign(credit.values)[tokens.step]
    keys = np.stack([table.task[tokens.step], table.index[tokens.step], place, tokens.token])
    _, key = np.unique(keys, axis=1, return_inverse=True)
    key = key.reshape(-1)
    in_good, in_bad = (np.bincount(key, weights=sign == which) > 0 for which in (1, -1))
    is_shared = (in_good & in_bad)[key] & (sign != 0)
    first_break = np.full(len(table), np.iinfo(np.int64).max)
    np.minimum.at(first_break, tokens.step[~is_shared], place[~is_shared])
    in_run: BoolArray = is_shared & (place < first_break[tokens.step])
    return in_run
