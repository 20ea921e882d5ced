"""Oracle of SRPO's credit: graded credit, and what a hit adds to the chance that one of k rollouts hits."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import combinations

from tests.oracles.episode import against_task
from tests.oracles.rows import Result, Row, zscore


def srpo(rows: list[Row], *, k: int = 4, best: float = 1.0) -> Result:
    """z + bonus, the chances counted over every choice of k rollouts; 1 of 8 hits, k 4: +0.999998 and -0.142857."""

    def against(own: float, numbers: Sequence[float]) -> float:
        hits = [value >= best - 1e-9 * max(1.0, abs(best)) for value in numbers]
        graded = zscore(own, numbers, ddof=1, eps=1e-6)
        if not any(hits) or all(hits) or len(hits) - sum(hits) < k:
            return graded
        place = numbers.index(own)
        choices = list(combinations(range(len(hits)), k))
        chance = sum(any(hits[i] for i in choice) for choice in choices) / len(choices)
        with_own = [choice for choice in choices if place in choice]
        added = sum(any(hits[i] for i in choice) for choice in with_own) / len(with_own)
        return graded + (added - chance) / (math.sqrt(chance * (1 - chance)) + 1e-6)

    return against_task(rows, against, average="rollout", alone="zero")
