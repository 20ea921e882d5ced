"""HGPO as one pass over a dictionary: hash each step's recent states, then visit the clusters.

The literal oracle compares every step with every other; this is the loop a practitioner would write. It serves as the
second speed baseline and is tested to equal the literal one.
"""

from __future__ import annotations

import math
from collections import defaultdict

from tests.oracles.rows import Result, Row, number

Key = tuple[int, tuple[object, ...]]
"""Level; then the task, and the states from that many steps back up to now."""


def hgpo_by_clusters(
    rows: list[Row],
    *,
    depth: int = 2,
    alpha: float = 1.0,
    gamma: float = 0.95,
    scale: str = "std",
    invalid_penalty: float = 0.1,
) -> Result:
    """A = sum_k w_k A_k / sum_k w_k with w_k = (k+1)^alpha (numbers, HGPO), clusters found by hashing.

    Example: three steps in state s with returns 9, 0, 9 form one cluster of mean 6 and population std 4.2426; the
    first gets 3 / 4.2426 = 0.7071.
    """
    ahead = _returns(rows, gamma, invalid_penalty)
    clusters = _clusters(rows, depth)
    total, weight_sum, compared = [0.0] * len(rows), [0.0] * len(rows), [False] * len(rows)
    for (level, _), members in clusters.items():
        if len(members) < 2:
            continue
        weight = float(level + 1) ** alpha
        for position, value in _level_credit(members, ahead, scale):
            total[position] += weight * value
            weight_sum[position] += weight
            compared[position] = True
    return [value / weight if weight else 0.0 for value, weight in zip(total, weight_sum, strict=True)], compared


def _paths(rows: list[Row]) -> list[list[int]]:
    """Positions of each rollout's rows, by ascending index."""
    paths: dict[tuple[object, object], list[int]] = defaultdict(list)
    for position, row in enumerate(rows):
        paths[row["task"], row["rollout"]].append(position)
    return [sorted(path, key=lambda position: number(rows[position]["step"])) for path in paths.values()]


def _returns(rows: list[Row], gamma: float, invalid_penalty: float) -> list[float]:
    ahead = [0.0] * len(rows)
    for path in _paths(rows):
        later = 0.0
        for position in reversed(path):
            later = number(rows[position]["reward"]) + gamma * later
            ahead[position] = later if rows[position].get("well_formed", True) else later - invalid_penalty
    return ahead


def _clusters(rows: list[Row], depth: int) -> dict[Key, list[int]]:
    clusters: dict[Key, list[int]] = defaultdict(list)
    for path in _paths(rows):
        recent: list[object] = []
        expected: float | None = None
        for position in path:
            row = rows[position]
            index, state = number(row["step"]), row.get("state")
            if index != expected:
                recent = []
            expected = index + 1
            if state is None:
                recent = []
                continue
            recent = [*recent, state][-(depth + 1) :]
            for level in range(len(recent)):
                clusters[level, (row["task"], *recent[-level - 1 :])].append(position)
    return clusters


def _level_credit(members: list[int], ahead: list[float], scale: str) -> list[tuple[int, float]]:
    numbers = [ahead[position] for position in members]
    if min(numbers) == max(numbers):
        return [(position, 0.0) for position in members]
    centre = math.fsum(numbers) / len(numbers)
    width = 1.0
    if scale == "std":
        width = math.sqrt(math.fsum((value - centre) ** 2 for value in numbers) / len(numbers)) + 1e-6
    return [(position, (ahead[position] - centre) / width) for position in members]
