"""How `DoubtGate` comes by a step's number, in plain arithmetic. Axis: S steps."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from groupwise.core.credit import Derivation
from groupwise.core.segments import BoolArray, FloatArray
from groupwise.core.step_table import StepTable

if TYPE_CHECKING:
    from groupwise.advantages.doubt_gate import DoubtGate


@dataclass(frozen=True, eq=False, kw_only=True)
class GateTrace:
    """How a gate came about."""

    values: FloatArray
    """The gate of each step (S)."""
    compared: BoolArray
    """Whether there was more than one attempt (S)."""
    share: float
    """How many of the doubtful attempts may pass, as a share."""
    part: DoubtGate
    """The estimator."""

    def derive(self, table: StepTable, step: int) -> Derivation:
        """The attempt's doubt against the quantile of all, and how many steps the gate is open for."""
        attempts, part = table.attempt.tolist(), self.part
        own, *others = (_rate_wins(part_of(table).tolist(), attempts) for part_of in (part.of, *part.auxiliary))
        doubts = {
            attempt: round(rate - math.fsum(other[attempt] for other in others) / max(len(others), 1), 12)
            for attempt, rate in own.items()
        }
        bound = _find_quantile([doubt for doubt in doubts.values() if doubt >= 0], 1 - self.share)
        opened = {attempt for attempt, doubt in doubts.items() if doubt >= bound - 1e-9 or not others}
        kept = [attempt for attempt, trains in zip(attempts, table.trains.tolist(), strict=True) if trains]
        num_open = sum(attempt in opened for attempt in kept)
        value = len(kept) / num_open if num_open and attempts[step] in opened else 0.0
        words = f"open for all: {len(kept)} / {num_open}"
        if others:
            how = f"open: {len(kept)} / {num_open}" if attempts[step] in opened else "shut"
            words = f"doubt {doubts[attempts[step]]:.6g} against {bound:.6g}, {how}"
        return Derivation(
            value=value,
            formula=f"{words} = {value:.6g}",
            members=tuple((attempts.index(attempt), doubt) for attempt, doubt in doubts.items()),
        )


def _rate_wins(values: Sequence[float], attempts: Sequence[int]) -> dict[int, float]:
    """The share of the other attempts that each one beats."""
    of_attempt: dict[int, list[float]] = {}
    for value, attempt in zip(values, attempts, strict=True):
        of_attempt.setdefault(attempt, []).append(value)
    means = {attempt: own[0] + math.fsum(x - own[0] for x in own) / len(own) for attempt, own in of_attempt.items()}
    return {
        attempt: sum(other < mean - 1e-9 * max(abs(mean), 1.0) for other in means.values()) / max(len(means) - 1, 1)
        for attempt, mean in means.items()
    }


def _find_quantile(values: Sequence[float], share: float) -> float:
    """The value below which such a share lies, interpolated; infinity of nothing."""
    if not values:
        return math.inf
    ordered = sorted(values)
    place = share * (len(ordered) - 1)
    low = math.floor(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)
