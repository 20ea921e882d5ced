"""Oracles after DSDR: distinctness by loops, shares by a softmax, credit with a floor, the loss of allotted entropy."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from tests.oracles.episode import against_task
from tests.oracles.losses import Token
from tests.oracles.rows import Result, Row, deviation, std


def after_dsdr(rows: list[Row], *, floor: float = 0.05) -> Result:
    """(R - mean) / max(std + 1e-6, floor); 1.05, 1.03, 1.01, 0: .538563, .499748, .460932, -1.499244."""

    def against(own: float, numbers: Sequence[float]) -> float:
        above = deviation(own, numbers)
        return above / max(std(numbers, 1) + 1e-6, floor) if above else 0.0

    return against_task(rows, against, average="rollout", alone="zero")


def measure_distinctness(points: Sequence[Sequence[float]], formulas: Sequence[Sequence[str]]) -> list[float]:
    """1 - mean cosine to the others, and the share of formulas that no other has, halved."""

    def cosine(first: Sequence[float], second: Sequence[float]) -> float:
        dot = math.fsum(a * b for a, b in zip(first, second, strict=True))
        return dot / math.sqrt(math.fsum(a * a for a in first) * math.fsum(b * b for b in second))

    distinct = []
    for i, point in enumerate(points):
        others = [j for j in range(len(points)) if j != i]
        if not others:
            distinct.append(0.0)
            continue
        by_meaning = 1 - math.fsum(cosine(point, points[j]) for j in others) / len(others)
        own = list(dict.fromkeys(formulas[i]))
        new = [formula for formula in own if not any(formula in formulas[j] for j in others)]
        both = (by_meaning + len(new) / len(own)) / 2 if own else by_meaning
        distinct.append(max(0.0, min(1.0, both)))
    return distinct


def share_out(distinct: Sequence[float], temperature: float) -> list[float]:
    """D = .6, .3, .1 at .1: .946499, .047123, .006377."""
    weights = [math.exp(value / temperature) for value in distinct]
    return [weight / math.fsum(weights) for weight in weights]


def sum_allotted_entropy(
    tokens: Sequence[Token], share: Mapping[int, float], weight: float
) -> tuple[float, list[float]]:
    """-weight * share * rho * H, mean over tokens: its value, and its slope by each trained token's entropy."""
    trained = [token for token in tokens if token.trains]
    slopes = [
        -weight * share[t.trajectory] * math.exp(max(-20.0, min(20.0, t.logp - t.old))) / len(trained) for t in trained
    ]
    return math.fsum(slope * token.entropy for slope, token in zip(slopes, trained, strict=True)), slopes
