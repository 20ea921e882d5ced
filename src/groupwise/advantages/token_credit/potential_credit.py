"""Credit of the lines of an answer by the potential that each line changed: SPAE.

Axes: S steps of the table, K sampled tokens of all steps, G lines of all steps.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np
from pydantic import Field

from groupwise.advantages.token_credit.answer_segments import AnswerSegments, join_numbers, read_segments
from groupwise.core.credit import Credit, Derivation
from groupwise.core.parts.part import Part
from groupwise.core.segments import FloatArray
from groupwise.core.step_table import StepTable
from groupwise.core.token_credit import TokenCredit
from groupwise.core.token_table import TokenTable

ENDS, POTENTIALS = "potential_ends", "potentials"
Amount = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class PotentialCredit(Part, slot="token_credit"):
    """Damp the credit of lines after the answer was known, and add what each line changed in the potential.

        d_k = Phi_k - Phi_(k-1),   Phi_0 = 0;   C_k = lines before k with Phi > saturated_above
        A_k = A * (1 - alpha * (1 - exp(-C_k))) + xi * (exp(minmax(d_k)) - mean over all lines of exp(minmax(d)))

    minmax takes the smallest d of the batch to 0 and the largest to 1.

    Source: SPAE (arXiv:2601.03823), from notes on the paper; its A is the return less the group's mean. **Choices.**
    The batch is the lines of the steps that train, by filters; where all d are equal, nothing is added. Damping acts on
    punishment too, as in the notes, unless `damps_praise_only`. The z-score at the end is `whitened_tokens` around it.
    """

    mixes_tasks: ClassVar[bool] = True
    reads: ClassVar[frozenset[str]] = frozenset({ENDS, POTENTIALS})
    alpha: Annotated[float, Field(ge=0, le=1)] = 0.5
    """How much of the credit is taken from lines long after the answer was known."""
    xi: Amount = 0.5
    """Weight of the change in potential."""
    saturated_above: float = 0.9
    """Potential above which the answer counts as known."""
    damps_praise_only: bool = False
    """Whether the credit of bad answers is left whole."""

    def __call__(self, table: StepTable, credit: Credit, tokens: TokenTable) -> TokenCredit:
        lines = read_segments(table, tokens, ends=ENDS, numbers=POTENTIALS, more=0)
        own = credit.values[lines.step]
        damping = 1.0 - self.alpha * (1.0 - np.exp(-self._count_known(lines)))
        if self.damps_praise_only:
            damping = np.where(own > 0, damping, 1.0)
        values = own * damping + self.xi * self._weigh_changes(table, lines)
        return TokenCredit(
            values=values[lines.of_token] if len(tokens) else np.zeros(0),
            trains=np.ones(len(tokens), dtype=np.bool_),
            trace=PotentialTrace(part=self),
        )

    def _count_known(self, lines: AnswerSegments) -> FloatArray:
        known = [[level > self.saturated_above for level in levels] for levels in lines.numbers]
        return join_numbers([[float(sum(flags[:line])) for line in range(len(flags))] for flags in known])

    def _weigh_changes(self, table: StepTable, lines: AnswerSegments) -> FloatArray:
        change = join_numbers([np.diff([0.0, *levels]).tolist() for levels in lines.numbers])
        counted = change[table.trains[lines.step]]
        if not len(counted) or counted.min() == counted.max():
            return np.zeros(len(change))
        low, high = counted.min(), counted.max()
        gain: FloatArray = np.exp((change - low) / (high - low)) - np.exp((counted - low) / (high - low)).mean()
        return gain


@dataclass(frozen=True, eq=False, kw_only=True)
class PotentialTrace:
    """How `PotentialCredit` comes by a token's credit."""

    part: PotentialCredit
    """The part."""

    def derive(self, table: StepTable, credit: Credit, tokens: TokenTable, token: int) -> Derivation:
        """The credit of the answer, damped, and the token's line held against all lines."""
        part, step = self.part, int(tokens.step[token])
        has_tokens = set(tokens.step.tolist())
        line = sum(1 for end in table.column(ENDS)[step] if end <= int(tokens.position[token]))
        levels = table.column(POTENTIALS)[step]
        changes = [
            after - before
            for number, potentials in enumerate(table.column(POTENTIALS))
            if number in has_tokens and table.trains[number]
            for before, after in zip([0.0, *potentials], potentials, strict=False)
        ]
        change, gain = levels[line] - (levels[line - 1] if line else 0.0), 0.0
        if len(set(changes)) > 1:
            low, high = min(changes), max(changes)
            raised = [math.exp((other - low) / (high - low)) for other in changes]
            gain = math.exp((change - low) / (high - low)) - math.fsum(raised) / len(raised)
        own = float(credit.values[step])
        known = sum(level > part.saturated_above for level in levels[:line])
        damping = 1.0 - part.alpha * (1.0 - math.exp(-known))
        damping = 1.0 if part.damps_praise_only and own <= 0 else damping
        value = own * damping + part.xi * gain
        lines = (
            f"it is in line {line + 1} of {len(levels)}, which changed the potential by {change:.6g}",
            f"changes of the {len(changes)} lines that count run from {min(changes, default=0.0):.6g} to "
            f"{max(changes, default=0.0):.6g}; held against all of them, this one gains {gain:.6g}",
            f"lines before it with a potential above {part.saturated_above:.6g}: {known}, which leaves {damping:.6g} "
            "of the credit",
        )
        formula = f"{own:.6g} x {damping:.6g} + {part.xi:.6g} x {gain:.6g} = {value:.6g}"
        return Derivation(value=value, formula=formula, lines=lines)
