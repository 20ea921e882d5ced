"""True advantages by continuations: what follows on average from a step's action, less what follows without it.

    Q = mean discounted reward, the step's own included, of attempts that keep the step's action and go on from there
    V = the same of attempts that keep only what was before the step, and draw its action anew
    A = Q - V

Continuation k of either kind is given the same seed, and draws its later steps by their index: where V's draws come to
the same action, both go on alike. So the two are compared in pairs, and the standard error is that of the mean of the
pairs' differences. An error bar that is too long is made half as long by four times as many. A pair in which either
ended with a fault says nothing of the policy, and is left out.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from groupwise.core.errors import ConfigError
from groupwise.core.records import Trajectory, has_survived
from groupwise.core.seeds import seed_of
from groupwise.rollout.forks import Fork

MIN_CONTINUATIONS = 2
"""Fewer have no standard error."""
FORKS_AT_ONCE = 2048
"""Continuations that are played together."""
PlayForks = Callable[[Sequence[Fork]], Sequence[Trajectory]]
"""Plays continuations to their ends, and pays them as the recorded attempts were."""


@dataclass(frozen=True, kw_only=True)
class RecordedStep:
    """A step of an attempt, as it was played."""

    attempt: Trajectory
    index: int


@dataclass(frozen=True, kw_only=True)
class ContinuedAdvantage:
    """The true advantage of a step, as continuations tell it; NaN where faults left fewer than two pairs."""

    value: float
    """Q - V."""
    error: float
    """Its standard error."""
    action_value: float
    """Q."""
    state_value: float
    """V."""
    pairs_left_out: int
    """Pairs of continuations that a fault ended."""
    first_fault: str = ""
    """What ended the first of them; empty = there are none."""


def continue_steps(
    steps: Sequence[RecordedStep], play: PlayForks, *, num: int, gamma: float = 1.0, seed: int = 0
) -> list[ContinuedAdvantage]:
    """The true advantage of each step, by `num` continuations after its action and as many before it.

    Args:
        steps: the steps.
        play: plays continuations with the policy that sampled the steps.
        num: continuations of each kind.
        gamma: how much a reward one step later counts.
        seed: where the continuations' random numbers come from.
    """
    if num < MIN_CONTINUATIONS:
        raise ConfigError(f"found {num} continuations of each kind; at least {MIN_CONTINUATIONS} have an error bar")
    forks = [fork for step in steps for fork in _list_forks(step, num, seed)]
    played = [
        trajectory
        for first in range(0, len(forks), FORKS_AT_ONCE)
        for trajectory in play(forks[first : first + FORKS_AT_ONCE])
    ]
    advantages = []
    for number, step in enumerate(steps):
        own = played[2 * num * number : 2 * num * (number + 1)]
        pairs = [
            [discount_rewards(trajectory, step.index, gamma=gamma) for trajectory in pair]
            for pair in zip(own[:num], own[num:], strict=True)
            if all(has_survived(trajectory) for trajectory in pair)
        ]
        faults = (trajectory.error or trajectory.stop.value for trajectory in own if not has_survived(trajectory))
        advantages.append(replace(_compare_pairs(pairs, num), first_fault=next(faults, "")))
    return advantages


def _compare_pairs(pairs: Sequence[Sequence[float]], num: int) -> ContinuedAdvantage:
    """Q - V from what the pairs that are left of `num` earned, after the action and before it."""
    left_out = num - len(pairs)
    if len(pairs) < MIN_CONTINUATIONS:
        nan = float("nan")
        return ContinuedAdvantage(value=nan, error=nan, action_value=nan, state_value=nan, pairs_left_out=left_out)
    after, before = np.array(pairs).T
    difference = after - before
    return ContinuedAdvantage(
        value=float(difference.mean()),
        error=float(difference.std(ddof=1)) / math.sqrt(len(pairs)),
        action_value=float(after.mean()),
        state_value=float(before.mean()),
        pairs_left_out=left_out,
    )


def discount_rewards(trajectory: Trajectory, first: int, *, gamma: float) -> float:
    """What an attempt earned from a step on, discounted to that step."""
    return sum(gamma ** (step.index - first) * step.reward for step in trajectory.steps[first:])


def _list_forks(step: RecordedStep, num: int, seed: int) -> Iterator[Fork]:
    """The continuations of a step: first those that keep its action, then those that do not."""
    trunk = step.attempt
    seeds = [seed_of(seed, "continuation", trunk.id, step.index, number) for number in range(num)]
    for kept in (step.index + 1, step.index):
        for number in range(num):
            yield Fork(trunk=trunk, kept=kept, number=number, seed=seeds[number])
