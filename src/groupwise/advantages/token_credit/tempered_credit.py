"""Credit that holds the entropy of the policy at a level, by a ratio to a hotter or colder policy: DCPO.

Axes: S steps of the table, K sampled tokens of all steps.
"""

from __future__ import annotations

from typing import Annotated, ClassVar

import numpy as np
from pydantic import Field

from groupwise.advantages.token_credit.answer_traces import TemperedTrace
from groupwise.advantages.token_credit.entropy_memories import LAST_ENTROPY, LastEntropy
from groupwise.core.column_checks import to_numbers
from groupwise.core.credit import Credit
from groupwise.core.errors import RecordError
from groupwise.core.parts.part import Part
from groupwise.core.segments import FloatArray
from groupwise.core.step_table import StepTable
from groupwise.core.token_credit import TokenCredit
from groupwise.core.token_table import TokenTable


class TemperedCredit(Part, slot="token_credit"):
    """Mix into the credit of right answers how much likelier each token would be under a hotter or colder policy.

        A_t = (1 - w) * A + w * c * exp(logp^T_t - logp_t),   c = 1 where the return is above `right_above`, else 0
        w = a / (1 + a),   a = min(|target - H|, max_gap) / share of right answers;   T hot where H <= target, else cold

    H is the entropy of the update before, estimated by the mean of -logp over its sampled tokens; 0 before the first.

    Source: DCPO's release (597358816/DCPO). **Choices.** Where no answer is right, w is 0: the release would divide by
    zero. Answers are attempts. The measure `tempered_score` gives logp^T; logp is the engine's when it sampled. H comes
    from a memory; a table without one has H = 0, as before the first update.
    """

    mixes_tasks: ClassVar[bool] = True
    reads: ClassVar[frozenset[str]] = frozenset({"logp_hot", "logp_cold"})
    target: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.5
    """The entropy to hold: H0."""
    max_gap: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.1
    """Distance from the target beyond which the pull grows no further."""
    right_above: float = 0.05
    """Return above which an answer counts as right."""

    def __call__(self, table: StepTable, credit: Credit, tokens: TokenTable) -> TokenCredit:
        is_right = table.episode_return > self.right_above
        level = _read_level(table)
        weight = self.find_weight(level, float(is_right[table.attempts.first].mean()) if len(table) else 0.0)
        tempered = _read_logps(table, tokens, "logp_hot" if level <= self.target else "logp_cold")
        ratio = np.exp(tempered - tokens.column("logp", table))
        return TokenCredit(
            values=(1.0 - weight) * credit.values[tokens.step] + weight * is_right[tokens.step] * ratio,
            trains=np.ones(len(tokens), dtype=np.bool_),
            trace=TemperedTrace(part=self),
        )

    def find_weight(self, level: float, share_right: float) -> float:
        """Weight of the second ratio, given the last entropy and the share of right answers.

        >>> round(TemperedCredit().find_weight(0.42, 0.25), 6)
        0.242424
        """
        pull = min(abs(self.target - level), self.max_gap) / share_right if share_right > 0 else 0.0
        return pull / (1.0 + pull)

    def start(self, *, seed: int) -> LastEntropy:
        """Begin with entropy 0, as the release does; nothing here is random."""
        return LastEntropy()


def _read_level(table: StepTable) -> float:
    return (
        float(to_numbers(LAST_ENTROPY, table.column(LAST_ENTROPY))[0])
        if LAST_ENTROPY in table.extra and len(table)
        else 0.0
    )


def _read_logps(table: StepTable, tokens: TokenTable, name: str) -> FloatArray:
    """A measured column of one number a sampled token (K)."""
    column, length = table.column(name), np.bincount(tokens.step, minlength=len(table)).tolist()
    logps: list[float] = []
    for step, num in enumerate(length):
        if num == 0:
            continue
        if not isinstance(column[step], list | tuple) or len(column[step]) != num:
            raise RecordError(
                f"{table.describe_step(step)}: {name} does not hold a number for each of its {num} sampled tokens; "
                "measure it with tempered_score"
            )
        logps += column[step]
    return np.array(logps, dtype=np.float64)
