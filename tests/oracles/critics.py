"""Oracles of methods with a critic: GAE as a mixture of returns over n steps, the value loss number by number.

In exact fractions. The advantage is written as in the paper's equation 16, without one-step differences:

    A = (1 - lam) * sum over n of lam^(n - 1) (G_n - V),   G_n = r + gamma r' + ... + gamma^n V(n steps later)

The last n, which reaches the end, has all weight that is left.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from tests.oracles.batchwide import whiten_tokens
from tests.oracles.rows import Result, Row, by_rollout, episode_returns, number, spread, steps_of


def mix_returns(rewards: Sequence[float], values: Sequence[float], *, gamma: float, lam: float) -> list[Fraction]:
    """The advantage of each place of one rollout."""
    discount, share, size = Fraction(gamma), Fraction(lam), len(rewards)
    advantages = []
    for place in range(size):
        total, weight_left, gathered = Fraction(0), Fraction(1), Fraction(0)
        for steps in range(1, size - place + 1):
            gathered += discount ** (steps - 1) * Fraction(rewards[place + steps - 1])
            is_last = place + steps == size
            bootstrap = Fraction(0) if is_last else discount**steps * Fraction(values[place + steps])
            weight = weight_left if is_last else weight_left * (1 - share)
            total += weight * (gathered + bootstrap - Fraction(values[place]))
            weight_left *= share
        advantages.append(total)
    return advantages


def ppo(rows: list[Row], *, gamma: float = 1.0, lam: float = 1.0, whiten: bool = True) -> Result:
    """The advantage that reports show: step by step, whatever tokens get.

    Example (rounds, Critics): gamma .99, lam .9, r (0, 0, 1), V (.3, .5, .6): .596306, .4504, .4.
    """
    del whiten  # of tokens
    return turn_ppo(rows, gamma=gamma, lam=lam, whiten=False)


def turn_ppo(rows: list[Row], *, gamma: float = 0.99, lam: float = 0.9, whiten: bool = True) -> Result:
    """The same, then whitened over all tokens that train."""
    steps = steps_of(rows)
    returns, credit = episode_returns(steps), {}
    for who, path in by_rollout(steps).items():
        rewards = [step.reward for step in path]
        if "outcome" in path[0].row:
            rewards = [0.0] * (len(path) - 1) + [returns[who]]
        values = [number(step.row["critic_value"]) for step in path]
        credit |= dict(zip(path, map(float, mix_returns(rewards, values, gamma=gamma, lam=lam)), strict=True))
    if not whiten:
        return spread(rows, steps, lambda step: (credit[step], True))
    white, is_compared = whiten_tokens([credit[step] for step in steps], [step.trained_tokens for step in steps], 1e-8)
    by_step = dict(zip(steps, white, strict=True))
    return spread(rows, steps, lambda step: (by_step[step], is_compared))


def token_advantages(
    rewards: Sequence[float], values: Sequence[Sequence[float]], *, gamma: float, lam: float
) -> list[list[Fraction]]:
    """The advantages of the tokens of one rollout, step by step: each step's reward comes with its last token."""
    paid: list[float] = []
    for reward, of_step in zip(rewards, values, strict=True):
        if of_step:
            paid += [0.0] * (len(of_step) - 1) + [reward]
        elif paid:
            paid[-1] += reward
    flat = [value for of_step in values for value in of_step]
    remaining = iter(mix_returns(paid, flat, gamma=gamma, lam=lam))
    return [[next(remaining) for _ in of_step] for of_step in values]


def value_loss(value: float, old: float, target: float, clip: float | None) -> tuple[float, float | None, bool]:
    """Loss of one state, its slope in the value (None = it jumps there), and whether it was clipped."""
    free, slope = (value - target) ** 2 / 2, value - target
    if clip is None or abs(value - old) < clip:
        return free, slope, False
    held = (old + clip if value > old else old - clip) - target
    if held**2 / 2 > free:
        return held**2 / 2, 0.0, True
    return free, None if held**2 / 2 == free else slope, False
