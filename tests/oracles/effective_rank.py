"""Effective rank from its definition, with lists and loops: singular values by one-sided Jacobi rotations."""

from __future__ import annotations

import math
from collections.abc import Sequence

Matrix = list[list[float]]


def singular_values(matrix: Sequence[Sequence[float]]) -> list[float]:
    """Rotate columns until any two are at right angles; their lengths are the singular values."""
    columns = [list(column) for column in zip(*matrix, strict=True)]
    total = math.fsum(dot(column, column) for column in columns)
    for _ in range(60):
        largest = 0.0
        for i in range(len(columns)):
            for j in range(i + 1, len(columns)):
                a, b = dot(columns[i], columns[i]), dot(columns[j], columns[j])
                c = dot(columns[i], columns[j])
                lengths = math.sqrt(a) * math.sqrt(b)
                if lengths <= 1e-25 * total or abs(c) <= 1e-16 * lengths:
                    continue
                largest = max(largest, abs(c) / lengths)
                zeta = (b - a) / (2 * c)
                t = math.copysign(1.0, zeta) / (abs(zeta) + math.hypot(1.0, zeta))
                cosine = 1 / math.hypot(1.0, t)
                sine = cosine * t
                columns[i], columns[j] = (
                    [cosine * x - sine * y for x, y in zip(columns[i], columns[j], strict=True)],
                    [sine * x + cosine * y for x, y in zip(columns[i], columns[j], strict=True)],
                )
        if largest < 1e-15:
            break
    return [math.sqrt(dot(column, column)) for column in columns]


def dot(first: Sequence[float], second: Sequence[float]) -> float:
    return math.fsum(x * y for x, y in zip(first, second, strict=True))


def effective_rank(states: Sequence[Sequence[float]]) -> float:
    """exp of the entropy of the singular values' shares, of the states less their mean."""
    if len(states) < 2 or all(list(row) == list(states[0]) for row in states):
        return 0.0
    means = [math.fsum(column) / len(states) for column in zip(*states, strict=True)]
    values = singular_values([[x - m for x, m in zip(row, means, strict=True)] for row in states])
    shares = [value / math.fsum(values) for value in values]
    return math.exp(-math.fsum(q * math.log(q) for q in shares if q > 0))


def growth(states: Sequence[Sequence[float]], stride: int) -> tuple[float, float, float]:
    """Rank, velocity and acceleration: prefixes of stride + 1, 2 stride + 1, ... tokens."""
    ranks, t = [], stride
    while t < len(states):
        ranks.append(effective_rank(states[: t + 1]))
        t += stride
    deltas = [ranks[j] - math.fsum(ranks[:j]) / j for j in range(1, len(ranks))]
    changes = [deltas[j] - deltas[j - 1] for j in range(1, len(deltas))]
    velocity = math.fsum(deltas) / len(deltas) if deltas else 0.0
    return effective_rank(states), velocity, math.fsum(changes) / len(changes) if changes else 0.0
