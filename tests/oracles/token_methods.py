"""Credit inside an answer, written from the formulas with lists and loops; shares no code with the package."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any


@dataclass
class Answer:
    """An attempt of one step: its group, what it earned, its tokens, and what was measured of it."""

    group: int
    reward: float
    ids: list[int]
    entropy: list[float]
    logp: list[float]
    facts: dict[str, Any] = field(default_factory=dict)


def mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)


def centred(answers: Sequence[Answer]) -> list[float]:
    """Reward less the group's mean; exactly 0 where all of a group are equal."""
    credit = []
    for answer in answers:
        rewards = [other.reward for other in answers if other.group == answer.group]
        credit.append(0.0 if len(set(rewards)) == 1 else answer.reward - mean(rewards))
    return credit


def gtpo(
    answers: Sequence[Answer],
    *,
    boost: float = 2.0,
    gamma: float = 0.1,
    limit: float = math.log(2),
    initial: float | None = None,
    divides: bool = False,
) -> list[list[float]]:
    """GTPO's weighted credit, token by token."""
    credit = centred(answers)
    levels = [mean(answer.entropy) for answer in answers]
    start = mean(levels) if initial is None else initial
    result = []
    for answer, own, level in zip(answers, credit, levels, strict=True):
        good = [a.ids for a, c in zip(answers, credit, strict=True) if a.group == answer.group and c > 0]
        bad = [a.ids for a, c in zip(answers, credit, strict=True) if a.group == answer.group and c < 0]
        forward = conflict_run(answer.ids, good, bad) if own else 0
        backward = conflict_run(answer.ids[::-1], [g[::-1] for g in good], [b[::-1] for b in bad]) if own else 0
        size = len(answer.ids)
        in_conflict = [place < forward or size - 1 - place < backward for place in range(size)]
        values = []
        for place in range(size):
            weight = 1.0
            if place < forward:
                weight *= boost if own > 0 else 0.0
            if size - 1 - place < backward:
                weight *= boost if own > 0 else 0.0
            if divides and sum(in_conflict):
                weight /= sum(in_conflict)
            value = 0.0 if level > limit and start < limit else own - gamma * level
            values.append(weight * value)
        result.append(values)
    return result


def conflict_run(ids: Sequence[int], good: Sequence[Sequence[int]], bad: Sequence[Sequence[int]]) -> int:
    for place, token in enumerate(ids):
        in_good = any(place < len(other) and other[place] == token for other in good)
        in_bad = any(place < len(other) and other[place] == token for other in bad)
        if not (in_good and in_bad):
            return place
    return len(ids)


def largest_variance(values: Sequence[float], num: int) -> float:
    """The largest variance of any choice of `num` values, by trying every one."""
    best = -1.0
    for chosen in combinations(values, num):
        middle = mean(chosen)
        best = max(best, mean([(value - middle) ** 2 for value in chosen]))
    return best


def top_tokens(credit: Sequence[float], entropies: Sequence[Sequence[float]], num: int) -> set[tuple[int, int]]:
    """The tokens with the largest |A| H, as (answer, place); those that come first where keys are equal."""
    keys = [
        (-abs(own) * entropy, answer, place)
        for answer, (own, entropies_of) in enumerate(zip(credit, entropies, strict=True))
        for place, entropy in enumerate(entropies_of)
    ]
    return {(answer, place) for _, answer, place in sorted(keys)[:num]}
