"""How credit with a second ratio comes about, worked out again."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from groupwise.advantages.token_credit.entropy_memories import LAST_ENTROPY
from groupwise.core.credit import Credit, Derivation
from groupwise.core.step_table import StepTable
from groupwise.core.token_table import TokenTable

if TYPE_CHECKING:
    from groupwise.advantages.token_credit.tempered_credit import TemperedCredit


@dataclass(frozen=True, eq=False, kw_only=True)
class TemperedTrace:
    """How `TemperedCredit` comes by a token's credit."""

    part: TemperedCredit
    """The part."""

    def derive(self, table: StepTable, credit: Credit, tokens: TokenTable, token: int) -> Derivation:
        """The step's credit and the ratio, in the shares that the entropy asks for."""
        part, step = self.part, int(tokens.step[token])
        returns = {int(a): float(r) for a, r in zip(table.attempt, table.episode_return, strict=True)}
        share = sum(value > part.right_above for value in returns.values()) / len(returns)
        level = float(table.column(LAST_ENTROPY)[step]) if LAST_ENTROPY in table.extra else 0.0
        pull = min(abs(part.target - level), part.max_gap) / share if share else 0.0
        weight = pull / (1 + pull)
        name = "logp_hot" if level <= part.target else "logp_cold"
        tempered, sampled = table.column(name)[step][int(tokens.position[token])], float(tokens.logp[token])
        is_right = table.episode_return[step] > part.right_above
        ratio = math.exp(tempered - sampled) if is_right else 0.0
        own = float(credit.values[step])
        value = (1 - weight) * own + weight * ratio
        lines = (
            f"right answers: {share:.6g} of the {len(returns)} attempts",
            f"entropy {level:.6g}, and {part.target:.6g} is wanted: pull {pull:.6g}, so weight {weight:.6g}",
            f"{name} {tempered:.6g}, log-prob {sampled:.6g}: ratio {math.exp(tempered - sampled):.6g}"
            if is_right
            else f"its answer is not right (return {table.episode_return[step]:.6g}), so no ratio is added",
        )
        formula = f"{1 - weight:.6g} x {own:.6g} + {weight:.6g} x {ratio:.6g} = {value:.6g}"
        return Derivation(value=value, formula=formula, lines=lines)
