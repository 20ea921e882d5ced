"""Oracles of R^3, worked by hand in numbers, R^3: the mixed advantage, the ranking, and what is replayed.

Rows say by a column `off_policy` whether their rollout was replayed; without it none was. Past rollouts are plain
dictionaries: {"number", "rollout", "version", "score", "states", "rewards"}.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from tests.oracles.history import blend, states_back
from tests.oracles.rows import Result, Row, Step, deviation, episode_returns, returns_to_go, spread, std, steps_of

EPS = 1e-6
Past = Mapping[str, Any]


def r3(rows: list[Row], *, with_replay: bool = True, alpha: float = 1.0) -> Result:
    """A_i = (R_i - mean(G_mix)) / (alpha std(G_mix) + lambda), population std, alpha 1 in a pure group.

    Example: 0, 0, 0, 0 and replayed 1, 1: mean 1/3, std 0.4714; alpha 2 gives -0.3536 and 0.7071.
    """
    steps = steps_of(rows)
    returns = episode_returns(steps)

    def credit(step: Step) -> tuple[float, bool]:
        numbers = [value for (task, _), value in returns.items() if task == step.task]
        if len(numbers) == 1:
            return 0.0, False
        group = [other for other in steps if other.task == step.task]
        return mix(returns[step.who], numbers, group, alpha if with_replay else 1.0), True

    return spread(rows, steps, credit)


def r3_fixed_scale(rows: list[Row], *, fixed: float = 0.5, above: float = 0.5, alpha: float = 1.0) -> Result:
    """R^3 in which a group without a return above a level is divided by a number.

    Example: 0.5, 0.25, 0, 0 over 0.5: mean 0.1875, so 0.625, 0.125, -0.375, -0.375; with 1 in the group as `r3`.
    """
    steps = steps_of(rows)
    returns = episode_returns(steps)

    def credit(step: Step) -> tuple[float, bool]:
        numbers = [value for (task, _), value in returns.items() if task == step.task]
        if len(numbers) == 1:
            return 0.0, False
        group = [other for other in steps if other.task == step.task]
        is_mixed = any(other.row.get("off_policy") for other in group)
        if max(numbers) <= above and not is_mixed:
            return deviation(returns[step.who], numbers) / fixed, True
        return mix(returns[step.who], numbers, group, alpha), True

    return spread(rows, steps, credit)


def r3_hgpo(
    rows: list[Row], *, depth: int = 2, gamma: float = 0.95, alpha: float = 1.0, with_replay: bool = True
) -> Result:
    """HGPO's levels, weights 1, 2, 3, ..., each level's own and replayed steps compared as `mix` compares them."""
    steps = steps_of(rows)
    place = {(step.task, step.rollout, step.index): step for step in steps}
    ahead = returns_to_go(steps, gamma)
    contexts = [{step: states_back(step, level, place) for step in steps} for level in range(depth + 1)]

    def credit(step: Step) -> tuple[float, bool]:
        entries: list[tuple[float, float]] = []
        for level, context in enumerate(contexts):
            if context[step] is None:
                continue
            group = [other for other in steps if other.task == step.task and context[other] == context[step]]
            if len(group) > 1:
                numbers = [ahead[other] for other in group]
                entries.append((level + 1.0, mix(ahead[step], numbers, group, alpha if with_replay else 1.0)))
        return blend(entries, drops_zeros=False, eps=0.0), bool(entries)

    return spread(rows, steps, credit)


def mix(own: float, numbers: Sequence[float], group: Sequence[Step], alpha: float) -> float:
    """The distance from the mean over the deviation, times alpha where some of the group was replayed."""
    factor = alpha if any(step.row.get("off_policy") for step in group) else 1.0
    above = deviation(own, numbers)
    return above / (factor * std(numbers, 0) + EPS) if above else 0.0


def rank_by_entropy(entropies: Sequence[Sequence[float]], *, p: float, best: float) -> list[float]:
    """SERR over the ranked responses: dominance counted pair by pair, tied ranks shared, one alone gets 0.

    Example: S = 2, 0, 1, 2 with R_max 0.5: ranks 0.5, 3, 2, 0.5, so R = 0.4167, 0, 0.1667, 0.4167.
    """
    if len(entropies) == 1:
        return [0.0]
    peak, overall = [], []
    for values in entropies:
        largest = sorted(values, reverse=True)[: max(1, math.floor(p * len(values)))]
        peak.append(math.fsum(largest) / len(largest))
        overall.append(math.fsum(values) / len(values))
    wins = []
    for i in range(len(entropies)):
        won = 0
        for j in range(len(entropies)):
            if peak[i] - peak[j] > 1e-9 and overall[j] - overall[i] > 1e-9:
                won += 1
        wins.append(won)
    order = sorted(wins, reverse=True)
    paid = []
    for won in wins:
        places = [place for place, other in enumerate(order) if other == won]
        paid.append(best * (1 - (sum(places) / len(places)) / (len(wins) - 1)))
    return paid


def recallable(scores: Sequence[float], past: Sequence[Past], *, ring: int, since: int) -> list[Past]:
    """CCR: past rollouts of the outcome that the group lacks, newest update first; none where it has both."""
    right = [score >= 0.5 for score in scores]
    if any(right) and not all(right):
        return []
    newest = sorted((one for one in past if one["version"] >= since), key=lambda one: (-one["number"], one["rollout"]))
    return [one for one in newest[:ring] if (one["score"] >= 0.5) != right[0]]


def replay_by_history(
    group: Sequence[Past], past: Sequence[Past], *, depth: int, max_replayed: int, gamma: float
) -> list[tuple[int, int]]:
    """The (number, rollout) that history-keyed replay replays, one by one, by trying every candidate each time."""
    own = [(context, gain) for one in group for context, gain in list_contexts(one, depth, gamma)]
    filled: set[tuple[Any, ...]] = set()
    left = sorted(past, key=lambda one: (-one["number"], one["rollout"]))
    replayed: list[tuple[int, int]] = []
    while len(replayed) < max_replayed:
        best: tuple[int, Past] | None = None
        for one in left:
            worth = sum(len(context) for context, _ in own if context in fills(one, own, depth, gamma) - filled)
            if worth and (best is None or worth > best[0]):
                best = (worth, one)
        if best is None:
            break
        filled |= fills(best[1], own, depth, gamma)
        replayed.append((best[1]["number"], best[1]["rollout"]))
        left.remove(best[1])
    return replayed


def fills(one: Past, own: Sequence[tuple[tuple[Any, ...], float]], depth: int, gamma: float) -> set[tuple[Any, ...]]:
    """The contexts in which all of the group's steps earned one amount, and a step of this rollout another."""
    filled = set()
    for context, gain in list_contexts(one, depth, gamma):
        gains = {other for shared, other in own if shared == context}
        if len(gains) == 1 and gain not in gains:
            filled.add(context)
    return filled


def list_contexts(one: Past, depth: int, gamma: float) -> list[tuple[tuple[Any, ...], float]]:
    """Every context that a rollout passed through, with what it earned from there on; None is no state."""
    contexts = []
    for step in range(len(one["states"])):
        gain = 0.0
        for reward in reversed(one["rewards"][step:]):
            gain = reward + gamma * gain
        for back in range(min(depth, step) + 1):
            context = tuple(one["states"][step - back : step + 1])
            if None not in context:
                contexts.append((context, gain))
    return contexts
