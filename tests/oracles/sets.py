"""Oracle of credit that sets share: every set of a task's rollouts, one by one."""

from __future__ import annotations

import math
from itertools import combinations

from tests.oracles.rows import Result, Row, by_rollout, by_task, episode_returns, spread, steps_of


def after_polychromic(rows: list[Row], *, size: int = 4, key: str = "action", variety: str = "beyond_first") -> Result:
    """R = 1, 1, 0, 0, kinds a, a, a, b, size 2: pairs with the second kind alone count, so 0, 0, -1/6, 1/6."""
    steps = steps_of(rows)
    returns = episode_returns(steps)
    kinds = {who: [step.row.get(key) for step in path] for who, path in by_rollout(steps).items()}
    credit: dict[tuple[object, object], float] = {}
    group_size: dict[object, int] = {}
    for task, own in by_task(steps).items():
        members = sorted({step.who for step in own}, key=str)
        group_size[task] = len(members)
        worth = {}
        for chosen in combinations(members, size):
            distinct: list[object] = []
            for who in chosen:
                if kinds[who] not in distinct:
                    distinct.append(kinds[who])
            varied = len(distinct) / size if variety == "share" else (len(distinct) - 1) / (size - 1)
            worth[chosen] = math.fsum(returns[who] for who in chosen) / size * varied
        for who in members:
            having = [score for chosen, score in worth.items() if who in chosen]
            mean = math.fsum(worth.values()) / len(worth) if worth else 0.0
            credit[who] = math.fsum(having) / len(having) - mean if having and len(members) > size else 0.0
    return spread(rows, steps, lambda step: (credit[step.who], group_size[step.task] > 1))
