"""Oracle of MARS: credit per player, centred on the distinct values the player's steps reach."""

from __future__ import annotations

from tests.oracles.batchwide import whiten_tokens
from tests.oracles.rows import (
    Result,
    Row,
    Step,
    all_equal,
    by_rollout,
    deviation,
    mean,
    spread,
    std,
    steps_of,
)

Player = tuple[object, object]


def mars(rows: list[Row], *, gamma: float = 1.0, scale: str = "none", whiten: bool = False) -> Result:
    """Centre rewards per player and game, sum what follows, centre on the player's distinct values over all games.

    Example: rewards 0.2, 0.8 and -0.5, -0.5 of one player have mean 0; their sums from each step on are 1.0, 0.8 and
    -1.0, -0.5, distinct mean 0.075, so the credit is 0.925, 0.725, -1.075, -0.575. Rewards 1, 0 in one game and 5, 1 in
    another: sums +-0.5 and +-2, distinct mean 0. Rewards 1, 0, 0 and 5, 1: sums 2/3, -1/3, -1/3 and +-2, the four
    distinct ones of mean 1/12, so 7/12, -5/12, -5/12, 23/12, -25/12; game by game it would be 1/2, -1/2, -1/2 and +-2.
    """
    steps = steps_of(rows)
    ahead = _centre_returns(steps, gamma)
    value = dict.fromkeys(steps, 0.0)
    compared = dict.fromkeys(steps, False)
    for role in {step.role for step in steps if step.role is not None}:
        turns = [step for step in steps if step.role == role]
        for step in turns if len(turns) > 1 else []:
            value[step] = _against_distinct(ahead[step], [ahead[other] for other in turns], scale)
            compared[step] = True
    if whiten:
        white, is_compared = whiten_tokens(
            [value[step] for step in steps], [step.trained_tokens for step in steps], 1e-8
        )
        value = dict(zip(steps, white, strict=True))
        compared = dict.fromkeys(steps, is_compared)
    return spread(rows, steps, lambda step: (value[step], compared[step]))


def is_near_a_rounding_tie(rows: list[Row], gamma: float) -> bool:
    """Whether some value lies half-way between two six-decimal numbers, where the last bit decides how it is rounded.

    Example: 1/128 = 0.0078125 is as near to 0.007812 as to 0.007813.
    """
    ahead = _centre_returns(steps_of(rows), gamma).values()
    return any(abs(value * 1e6 % 1.0 - 0.5) < 1e-6 for value in ahead)


def _centre_returns(steps: list[Step], gamma: float) -> dict[Step, float]:
    """Return-to-go of the rewards less the mean reward of player and game, along the player's own steps."""
    players: dict[Player, list[Step]] = {}
    for step in steps:
        players.setdefault((step.task, step.role), []).append(step)
    ahead = {}
    for turns in players.values():
        rewards = [step.reward for step in turns]
        for path in by_rollout(turns).values():
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
