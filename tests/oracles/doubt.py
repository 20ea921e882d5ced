"""Oracles of GARDO: doubt, gate and share by counting, distances between points by their angle."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from tests.oracles.episode import dr_grpo
from tests.oracles.rows import Result, Row

Signals = Mapping[object, Sequence[float]]
"""What each rollout earned: the reward that is trained on, then the auxiliary ones."""


def win_rate(own: float, others: Sequence[float]) -> float:
    """Rewards 9, 7, 8, 3: 9 beats all three others, 7 one, 8 two, 3 none."""
    return sum(own > other for other in others) / len(others) if others else 0.0


def doubt(rollouts: Signals) -> dict[object, float]:
    """Rewards 9, 7, 8, 3 and auxiliary 0.9, 0.2, 0.1, 0.5: 0, 0, 2/3, -2/3."""
    doubts = {}
    for name, own in rollouts.items():
        rates = [
            win_rate(value, [other[place] for key, other in rollouts.items() if key != name])
            for place, value in enumerate(own)
        ]
        doubts[name] = round(rates[0] - sum(rates[1:]) / max(len(rates) - 1, 1), 9)
    return doubts


def find_open(rollouts: Signals, share: float) -> set[object]:
    """Whom the gate is open for: those of doubt from the (1 - share) percentile of what is not negative."""
    if all(len(own) == 1 for own in rollouts.values()):
        return set(rollouts)
    doubts = doubt(rollouts)
    ranked = sorted(value for value in doubts.values() if value >= 0)
    if not ranked:
        return set()
    place = (1 - share) * (len(ranked) - 1)
    below, above = ranked[math.floor(place)], ranked[math.ceil(place)]
    bound = below + (place - math.floor(place)) * (above - below)
    return {name for name, value in doubts.items() if value >= bound - 1e-9}


def follow(share: float, means: Sequence[float]) -> float:
    """The share after these means, one an update: 10 % more or less where one leaves the range of the 20 before it."""
    for number, mean in enumerate(means):
        before = means[max(number - 20, 0) : number]
        if before and mean > max(before):
            share = min(share * 1.1, 0.2)
        elif before and mean < min(before):
            share = max(share * 0.9, 0.02)
    return share


def angle_distance(point: Sequence[float], other: Sequence[float]) -> float:
    """1 - cos; (1, 0) and (0.8, 0.6): 0.2."""
    product = math.fsum(a * b for a, b in zip(point, other, strict=True))
    return 1 - product / math.sqrt(math.fsum(a * a for a in point) * math.fsum(b * b for b in other))


def distances(points: Mapping[object, Sequence[float]]) -> dict[object, float]:
    """How far each rollout at one task is from its nearest neighbour, over the mean of that."""
    if len(points) < 2:
        return dict.fromkeys(points, 1.0)
    near = {
        name: min(angle_distance(point, other) for key, other in points.items() if key != name)
        for name, point in points.items()
    }
    mean = sum(near.values()) / len(near)
    return {name: value / mean if mean > 1e-9 else 1.0 for name, value in near.items()}


def gardo(rows: Sequence[Row], *, diversity: bool = True) -> Result:
    """Dr. GRPO's credit, what is not negative times the distance."""
    values, compared = dr_grpo(rows)
    if not diversity:
        return values, compared
    tasks: dict[object, dict[object, list[float]]] = {}
    for row in rows:
        point = row["embedding"]
        assert isinstance(point, list)
        length = math.sqrt(math.fsum(x * x for x in point))
        total = tasks.setdefault(row["task"], {}).setdefault(row["rollout"], [0.0] * len(point))
        for place, x in enumerate(point):
            total[place] += x / length
    weights = {task: distances(points) for task, points in tasks.items()}
    return [
        value * weights[row["task"]][row["rollout"]] if value >= 0 else value
        for row, value in zip(rows, values, strict=True)
    ], compared
