"""A KL to the reference in the reward, written from the formulas with loops; shares no code with the package."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass
class Sampled:
    """A rollout of one answer: its group, what it earned, and log-probs of its tokens, now and of the reference."""

    group: int
    reward: float
    logp: list[float]
    ref: list[float]


def pay(rollout: Sampled, beta: float) -> float:
    """r - beta * sum over tokens of (logp - ref)."""
    total = rollout.reward
    for now, before in zip(rollout.logp, rollout.ref, strict=True):
        total -= beta * (now - before)
    return total


def rloo(rollouts: Sequence[Sampled], beta: float) -> list[float]:
    """What a rollout is paid, less the mean of what the others of its group are."""
    credit = []
    for number, rollout in enumerate(rollouts):
        others = [
            pay(other, beta) for place, other in enumerate(rollouts) if place != number and other.group == rollout.group
        ]
        credit.append(pay(rollout, beta) - sum(others) / len(others) if others else 0.0)
    return credit


def p3o_gaps(rollouts: Sequence[Sampled], beta: float) -> dict[tuple[int, int], float]:
    """Of every two of a group that are paid differently, by how much more the first is paid."""
    gaps = {}
    for a, first in enumerate(rollouts):
        for b, second in enumerate(rollouts):
            gap = pay(first, beta) - pay(second, beta)
            if first.group == second.group and gap > 0:
                gaps[a, b] = gap
    return gaps


def reinforce_pp(rollouts: Sequence[Sampled], beta: float, gamma: float, eps: float = 1e-8) -> list[list[float]]:
    """Token rewards [t = last] r - beta (logp_t - ref_t), their returns, whitened over all tokens of the batch."""
    returns = []
    for rollout in rollouts:
        rewards = [-beta * (now - before) for now, before in zip(rollout.logp, rollout.ref, strict=True)]
        rewards[-1] += rollout.reward
        own = []
        for place in range(len(rewards)):
            own.append(sum(gamma ** (later - place) * rewards[later] for later in range(place, len(rewards))))
        returns.append(own)
    flat = [value for own in returns for value in own]
    if len(flat) < 2 or len(set(flat)) == 1:
        return [[0.0] * len(own) for own in returns]
    mean = math.fsum(flat) / len(flat)
    spread = math.sqrt(math.fsum((value - mean) ** 2 for value in flat) / (len(flat) - 1) + eps)
    return [[(value - mean) / spread for value in own] for own in returns]
