"""Oracles of the credit of off-policy REINFORCE: OPMD, AsymRE, RED-Weight."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

from tests.oracles.episode import against_task, dr_grpo
from tests.oracles.rows import Result, Row, deviation


def opmd(rows: list[Row], *, tau: float = 0.1, baseline: str = "mean", temperature: float = 1.0) -> Result:
    """A_i = r_i - mu, or r_i - t log(mean exp(r / t)); example: 1, 0, 0, 0 with t = 1: log(1.429570) = 0.357374."""

    def against_soft_maximum(own: float, numbers: Sequence[float]) -> float:
        above = [float(Fraction(other) - Fraction(own)) / temperature for other in numbers]
        highest = max(above)
        level = highest + math.log(math.fsum(math.exp(gap - highest) for gap in above) / len(above))
        return -temperature * level

    return (
        dr_grpo(rows)
        if baseline == "mean"
        else against_task(rows, against_soft_maximum, average="rollout", alone="zero")
    )


def asymre(rows: list[Row], *, shift: float = 0.1) -> Result:
    """A_i = r_i - (mu - shift); example: 1, 0, 0, 0 with 0.1: 0.85 and -0.15."""
    return against_task(rows, lambda own, numbers: deviation(own, numbers) + shift, average="rollout", alone="zero")


def red_weight(rows: list[Row], *, temperature: float = 1.0) -> Result:
    """d exp(d / T), d = r_i - mu; example: 1, 0, 0, 0: 0.75 e^0.75 = 1.587750, -0.25 e^-0.25 = -0.194700."""

    def weigh(own: float, numbers: Sequence[float]) -> float:
        above = deviation(own, numbers)
        return above * math.exp(max(-20.0, min(20.0, above / temperature)))

    return against_task(rows, weigh, average="rollout", alone="zero")
