"""A bonus for answers whose hidden states take more directions than usual, or do so faster: VERL.

Axes: S steps of the table, K sampled tokens of all steps.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

import numpy as np
from pydantic import Field

from groupwise.advantages.token_credit.rank_memory import LEVELS, RANKS, UNKNOWN, RankLevels
from groupwise.core.column_checks import to_numbers
from groupwise.core.credit import Credit, Derivation
from groupwise.core.parts.part import Part
from groupwise.core.segments import FloatArray
from groupwise.core.step_table import StepTable
from groupwise.core.token_credit import TokenCredit
from groupwise.core.token_table import TokenTable

EPS = 1e-8
Amount = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class RankBonus(Part, slot="token_credit"):
    """Add to an answer's credit where its effective rank, or the rank's velocity, lies above a moving average.

        A' = A + min(max(Phi, 0), |A| / kappa),   Phi = weight * (beta * tanh(u_rank) + (1 - beta) * tanh(u_velocity))
        beta = sigmoid(gain * u_acceleration),   u = (value - M) / (|M| + 1e-8), held within +-max_deviation

    So credit never changes its sign, and credit of 0 stays 0. M is a moving average over updates of each measure's mean
    over the update's steps: M <- (1 - new_share) * M + new_share * mean. The measure `effective_rank` writes the three.

    Source: VERL (arXiv:2509.23808), from its release. **Choices.** The bonus is on every token of an answer; the
    release has it on the last alone (`placement="last"`), and its script appears to switch it off. M begins with the
    first update's mean, where the release begins with 0 and saturates; before it is known, and in a table that has no
    memory, there is no bonus. `weight` is fixed; the release can let it fall with performance. M counts unguided steps
    that were measured.
    """

    reads: ClassVar[frozenset[str]] = frozenset(RANKS)
    weight: Amount = 1.0
    """Weight of the bonus."""
    gain: Annotated[float, Field(allow_inf_nan=False)] = 2.0
    """How sharply the acceleration decides between rank and velocity."""
    kappa: Annotated[float, Field(ge=1, allow_inf_nan=False)] = 2.0
    """The bonus is at most the credit's size over this."""
    new_share: Annotated[float, Field(gt=0, le=1)] = 0.3
    """Share of an update's mean in the moving average."""
    max_deviation: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 5.0
    """Largest relative deviation from the moving average."""
    placement: Literal["all", "last"] = "all"
    """Which tokens of an answer get the bonus."""

    def __call__(self, table: StepTable, credit: Credit, tokens: TokenTable) -> TokenCredit:
        bonus = self._find_bonus(table, np.abs(credit.values))[tokens.step]
        if self.placement == "last":
            bonus = np.where(tokens.position == tokens.step_length - 1, bonus, 0.0)
        return TokenCredit(
            values=credit.values[tokens.step] + bonus,
            trains=np.ones(len(tokens), dtype=np.bool_),
            trace=RankBonusTrace(part=self),
        )

    def _find_bonus(self, table: StepTable, size: FloatArray) -> FloatArray:
        """The bonus of each step (S), given the sizes of its credit."""
        values = [to_numbers(name, table.column(name)) for name in RANKS]
        if any(name not in table.extra for name in LEVELS):
            return np.zeros(len(table))
        levels = [to_numbers(name, table.column(name)) for name in LEVELS]
        rank, velocity, acceleration = (
            np.clip((value - level) / (np.abs(level) + EPS), -self.max_deviation, self.max_deviation)
            for value, level in zip(values, levels, strict=True)
        )
        beta = (1.0 + np.tanh(self.gain * acceleration / 2)) / 2  # the sigmoid, which no gain makes overflow
        phi = self.weight * (beta * np.tanh(rank) + (1.0 - beta) * np.tanh(velocity))
        return np.where(levels[0] == UNKNOWN, 0.0, np.minimum(np.maximum(phi, 0.0), size / self.kappa))

    def start(self, *, seed: int) -> RankLevels:
        """Begin with nothing measured; nothing here is random."""
        return RankLevels(self.new_share)


@dataclass(frozen=True, eq=False, kw_only=True)
class RankBonusTrace:
    """How `RankBonus` comes by a token's credit."""

    part: RankBonus
    """The part."""

    def derive(self, table: StepTable, credit: Credit, tokens: TokenTable, token: int) -> Derivation:
        """The step's credit, and the bonus that its rank, velocity and acceleration earn."""
        part, step = self.part, int(tokens.step[token])
        own = float(credit.values[step])
        is_last = int(tokens.position[token]) == int(tokens.step_length[token]) - 1
        if LEVELS[0] not in table.extra or table.column(LEVELS[0])[step] == UNKNOWN:
            return Derivation(value=own, formula=f"{own:.6g}, and no bonus: there is no moving average yet")
        if part.placement == "last" and not is_last:
            return Derivation(value=own, formula=f"{own:.6g}, and no bonus: it stands on the last token")
        u = []
        for name, level_name in zip(RANKS, LEVELS, strict=True):
            level = float(table.column(level_name)[step])
            deviation = (float(table.column(name)[step]) - level) / (abs(level) + EPS)
            u.append(max(-part.max_deviation, min(part.max_deviation, deviation)))
        beta = (1 + math.tanh(part.gain * u[2] / 2)) / 2
        phi = part.weight * (beta * math.tanh(u[0]) + (1 - beta) * math.tanh(u[1]))
        value = own + min(max(phi, 0.0), abs(own) / part.kappa)
        said = f"{own:.6g} + min(max({phi:.6g}, 0), {abs(own):.6g} / {part.kappa:.6g}) = {value:.6g}"
        return Derivation(value=value, formula=said)
