"""Credit of the lines of an answer by what each changed in the chance to answer rightly: after VSRM.

Axes: S steps of the table, K sampled tokens of all steps.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Annotated, ClassVar

import numpy as np
from pydantic import Field

from groupwise.advantages.token_credit.answer_segments import join_numbers, read_segments
from groupwise.core.credit import Credit, Derivation
from groupwise.core.parts.part import Part
from groupwise.core.step_table import StepTable
from groupwise.core.token_credit import TokenCredit
from groupwise.core.token_table import TokenTable

ENDS, ACCURACY = "line_token_ends", "line_accuracy"
Amount = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class LineGains(Part, slot="token_credit"):
    """Add to the credit of an answer, line by line, what the line changed in the chance to answer rightly.

        A_k = A + weight * r_k,   d_k = accuracy_k - accuracy_(k-1)
        r_k = d_k where |d_k| > min_change;   else gamma^j * d_(k+j), the first such change in the next `window` lines;
        else -idle_cost

    Source: ours, after VSRM (arXiv:2508.10293): what a line is paid by is published, its formula is not.
    **Choices.** The window, min_change and gamma are ours, and so is that each line has its own payment alone: summed
    up to the end they would come to accuracy at the end less that before the line, whatever the lines did. The credit
    of the answer's outcome stays.
    """

    reads: ClassVar[frozenset[str]] = frozenset({ENDS, ACCURACY})
    weight: Amount = 1.0
    """Weight of what lines are paid."""
    min_change: Amount = 0.05
    """Change of accuracy up to which a line counts as idle."""
    gamma: Annotated[float, Field(ge=0, le=1)] = 0.7
    """What an idle line has of the next line's payment."""
    window: Annotated[int, Field(ge=0)] = 3
    """How many lines after an idle one are looked at."""
    idle_cost: Amount = 0.0
    """What an idle line costs that no change follows."""

    def __call__(self, table: StepTable, credit: Credit, tokens: TokenTable) -> TokenCredit:
        lines = read_segments(table, tokens, ends=ENDS, numbers=ACCURACY, more=1)
        payments = join_numbers([self.pay_lines(levels) for levels in lines.numbers])
        paid = payments[lines.of_token] if len(tokens) else np.zeros(0)
        return TokenCredit(
            values=credit.values[tokens.step] + self.weight * paid,
            trains=np.ones(len(tokens), dtype=np.bool_),
            trace=LineTrace(part=self),
        )

    def pay_lines(self, accuracy: Sequence[float]) -> list[float]:
        """What each line is paid, given the accuracy before the first and after each.

        >>> [round(paid, 3) for paid in LineGains().pay_lines([0.25, 0.25, 0.25, 0.75, 0.75, 0.5])]
        [0.245, 0.35, 0.5, -0.175, -0.25]
        """
        changes = [after - before for before, after in pairwise(accuracy)]
        payments = []
        for line in range(len(changes)):
            near = enumerate(changes[line : line + 1 + self.window])
            payments.append(next((self.gamma**j * d for j, d in near if abs(d) > self.min_change), -self.idle_cost))
        return payments


@dataclass(frozen=True, eq=False, kw_only=True)
class LineTrace:
    """How `LineGains` comes by a token's credit."""

    part: LineGains
    """The part."""

    def derive(self, table: StepTable, credit: Credit, tokens: TokenTable, token: int) -> Derivation:
        """The credit of the answer, and what the token's line is paid."""
        part, step = self.part, int(tokens.step[token])
        levels, ends = table.column(ACCURACY)[step], table.column(ENDS)[step]
        line = sum(1 for end in ends if end <= int(tokens.position[token]))
        paid, distance = -part.idle_cost, 0
        while distance <= part.window and line + distance < len(ends):
            change = levels[line + distance + 1] - levels[line + distance]
            if abs(change) > part.min_change:
                paid = change * part.gamma**distance
                break
            distance += 1
        own = float(credit.values[step])
        value = own + part.weight * paid
        is_idle = distance > part.window or line + distance >= len(ends)
        why = (
            "no change in the next lines" if is_idle else f"a change {distance} lines on, x {part.gamma:.6g}^{distance}"
        )
        lines = (
            f"it is in line {line + 1} of {len(ends)}, which took accuracy from {levels[line]:.6g} to "
            f"{levels[line + 1]:.6g}",
            f"what the line is paid: {paid:.6g} ({why if distance else 'its own change'})",
        )
        formula = f"line {line + 1}: {own:.6g} + {part.weight:.6g} x {paid:.6g} = {value:.6g}"
        return Derivation(value=value, formula=formula, lines=lines)
