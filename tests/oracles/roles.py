"""Oracle of MARS: credit per player, centred on the distinct values the player's steps reach."""

from __future__ import annotations

from tests.oracles.batchwide import whitened
from tests.oracles.rows import (
    Result,
    Row,
    Step,
    all_equal,
    by_attempt,
    deviation,
    mean,
    spread,
    std,
    steps_of,
)

Player = tuple[object, object]


def mars(rows: list[Row], *, gamma: float = 1.0, scale: str = "none", whiten: bool = False) -> Result:
    """Centre rewards per player and game, sum what follows, centre on the distinct values (agentic.md 6.4).

    Example: rewards 0.2, 0.8 and -0.5, -0.5 of one player have mean 0; their sums from each step on are 1.0, 0.8 and
    -1.0, -0.5, distinct mean 0.075, so the credit is 0.925, 0.725, -1.075, -0.575.
    """
    steps = steps_of(rows)
    players: dict[Player, list[Step]] = {}
    for step in steps:
        if step.role is not None:
            players.setdefault((step.task, step.role), []).append(step)
    value = dict.fromkeys(steps, 0.0)
    compared = dict.fromkeys(steps, False)
    for turns in players.values():
        if len(turns) < 2:
            continue
        ahead = _centred_returns(turns, gamma)
        for step in turns:
            value[step] = _against_distinct(ahead[step], list(ahead.values()), scale)
            compared[step] = True
    if whiten:
        white, is_compared = whitened([value[step] for step in steps], [step.tokens for step in steps], 1e-8)
        value = dict(zip(steps, white, strict=True))
        compared = dict.fromkeys(steps, is_compared)
    return spread(rows, steps, lambda step: (value[step], compared[step]))


def is_near_a_rounding_tie(rows: list[Row], gamma: float) -> bool:
    """Whether some value lies half-way between two six-decimal numbers, where the last bit decides how it is rounded.

    Example: 1/128 = 0.0078125 is as near to 0.007812 as to 0.007813.
    """
    players: dict[Player, list[Step]] = {}
    for step in steps_of(rows):
        players.setdefault((step.task, step.role), []).append(step)
    ahead = [value for turns in players.values() for value in _centred_returns(turns, gamma).values()]
    return any(abs(value * 1e6 % 1.0 - 0.5) < 1e-6 for value in ahead)


def _centred_returns(turns: list[Step], gamma: float) -> dict[Step, float]:
    """Return-to-go of the rewards less the player's mean reward, along the player's own steps of each attempt."""
    rewards = [step.reward for step in turns]
    ahead = {}
    for path in by_attempt(turns).values():
        later = 0.0
        for step in reversed(path):
            later = deviation(step.reward, rewards) + gamma * later
            ahead[step] = later
    return ahead


def _against_distinct(own: float, values: list[float], scale: str) -> float:
    """own - mean of the distinct values; example: 1 among 1, 1, 1, 0 gives 0.5 and not 0.25."""
    distinct = sorted({round(value, 6) for value in values})
    if all_equal(distinct):
        return 0.0
    centred = own - mean(distinct)
    return centred / (std(distinct, 1) + 1e-6) if scale == "std" else centred
