"""How the credit of conflict tokens, and credit with a second ratio, come about: worked out again, answer by answer."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from groupwise.advantages.token_credit.entropy_memories import LAST_ENTROPY
from groupwise.core.credit import Credit, Derivation
from groupwise.core.step_table import StepTable
from groupwise.core.token_table import TokenTable

if TYPE_CHECKING:
    from groupwise.advantages.token_credit.conflict_tokens import ConflictTokens
    from groupwise.advantages.token_credit.tempered_credit import TemperedCredit


@dataclass(frozen=True, eq=False, kw_only=True)
class ConflictTrace:
    """How `ConflictTokens` comes by a token's credit, with the initial entropy that it went by."""

    part: ConflictTokens
    """The part."""
    initial: float
    """Mean entropy of the initial policy's answers."""

    def derive(self, table: StepTable, credit: Credit, tokens: TokenTable, token: int) -> Derivation:
        """The answer's credit less its entropy, times a factor for each end that the token is in conflict at."""
        part, step = self.part, int(tokens.step[token])
        group = [
            s for s in range(len(table)) if (table.task[s], table.index[s]) == (table.task[step], table.index[step])
        ]
        answers = {s: [k for k, of in enumerate(tokens.step.tolist()) if of == s] for s in group}
        own, position, earned = answers[step], int(tokens.position[token]), float(credit.values[step])
        mean_entropy = math.fsum(float(tokens.entropy[k]) for k in own) / len(own)
        by_ids = {s: [int(tokens.token[k]) for k in answer] for s, answer in answers.items()}
        signs = {s: float(credit.values[s]) for s in group}
        runs = _measure_run(by_ids, signs, step), _measure_run({s: ids[::-1] for s, ids in by_ids.items()}, signs, step)
        factor, from_end = 1.0, len(own) - 1 - position
        for is_in_run in (position < runs[0], from_end < runs[1]):
            factor *= (part.boost if earned > 0 else 0.0) if is_in_run else 1.0
        if part.divides_by_conflicts:
            factor /= max(1, sum(place < runs[0] or len(own) - 1 - place < runs[1] for place in range(len(own))))
        is_unsure = mean_entropy > part.max_entropy > self.initial
        value = 0.0 if is_unsure else factor * (earned - part.entropy_weight * mean_entropy)
        words = f"{factor:.6g} x ({earned:.6g} - {part.entropy_weight:.6g} x entropy {mean_entropy:.6g}) = {value:.6g}"
        lines = (
            f"mean entropy of the {len(own)} tokens of the answer: {mean_entropy:.6g}; the initial policy's: "
            f"{self.initial:.6g}; too large above {part.max_entropy:.6g}",
            f"of the answer, good and bad answers to the task share the first {runs[0]} and the last {runs[1]} tokens; "
            f"this is number {position + 1}, so its factor is {factor:.6g}",
        )
        formula = f"entropy {mean_entropy:.6g} is too large: 0" if is_unsure else words
        return Derivation(value=value, formula=formula, lines=lines)


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


def _measure_run(ids: Mapping[int, Sequence[int]], credit: Mapping[int, float], step: int) -> int:
    """How many tokens an answer begins with that good and bad answers both have at the same place."""
    if credit[step] == 0:
        return 0
    for place, token in enumerate(ids[step]):
        holders = [credit[s] for s, answer in ids.items() if len(answer) > place and answer[place] == token]
        if not (max(holders) > 0 > min(holders)):
            return place
    return len(ids[step])
