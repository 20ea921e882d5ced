"""How `JudgedCredit` comes by a token's credit, worked out again."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from groupwise.core.credit import Credit, Derivation
from groupwise.core.step_table import StepTable
from groupwise.core.token_table import TokenTable

if TYPE_CHECKING:
    from groupwise.advantages.token_credit.judged_credit import JudgedCredit

ENDS, SCORES = "judged_ends", "judged_scores"
"""Facts of a step that the measure `judged_segments` writes."""
KEPT, BROKEN = 1.0, -2.0
"""What the form of a response adds to the scores of its segments, where that is asked for."""


@dataclass(frozen=True, eq=False, kw_only=True)
class JudgedTrace:
    """How `JudgedCredit` comes by a token's credit."""

    part: JudgedCredit
    """The part."""

    def derive(self, table: StepTable, credit: Credit, tokens: TokenTable, token: int) -> Derivation:
        """The step's credit, and the score of the token's segment against those of the task."""
        part, step = self.part, int(tokens.step[token])
        scores = []
        for other in sorted(set(tokens.step.tolist())):
            if table.task[other] == table.task[step] and table.trains[other]:
                ends, numbers = table.column(ENDS)[other], table.column(SCORES)[other]
                for begin, end, number in zip([0, *ends], ends, numbers, strict=False):
                    scores += [self._score(table, other, number)] * (end - begin if part.per == "token" else 1)
        place = sum(1 for end in table.column(ENDS)[step] if end <= int(tokens.position[token]))
        own, score = float(credit.values[step]), self._score(table, step, table.column(SCORES)[step][place])
        mean, deviation = score, 1.0
        if len(set(scores)) > 1:
            mean = math.fsum(scores) / len(scores)
            deviation = math.sqrt(math.fsum((other - mean) ** 2 for other in scores) / len(scores) + part.eps)
        value = own + part.weight * (score - mean) / deviation
        formula = f"{own:.6g} + {part.weight:.6g} x ({score:.6g} - {mean:.6g}) / {deviation:.6g} = {value:.6g}"
        return Derivation(value=value, formula=formula)

    def _score(self, table: StepTable, step: int, number: float) -> float:
        squashed = (1 + math.tanh(number / 2)) / 2 if self.part.squashes else number
        if self.part.step_format == "intended":
            squashed += KEPT if table.column("well_formed")[step] else BROKEN
        return squashed
