"""What error credit must have, level by level, from exact values alone: nothing is sampled here.

A step x = (t, state, action) with return R is compared with the n steps of its group, itself among them, that share
the label C_k: the text of now and k before. With V and Q the true values, b = E[R | C_k] and own noise Var(R | x):

    credit = (1 - 1/n) (R - mean of the others)
    bias(x)     = (V - b) - (Q - b) E[1/n]
    variance(x) = E[(1 - 1/n)^2] Var(R | x) + E[(1 - 1/n) / n] Var(R | C_k) + (Q - b)^2 Var(1/n)

For large groups the bias is V - b, whose square has the mean E[Var(V | C_k)]: by the law of total variance it cannot
grow with k, since C_{k+1} determines C_k. Approximations: the others are independent draws of the label's steps, and
their number is Poisson with the mean that rollouts - 1 others leave there.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from groupwise.data.segments import BoolArray, FloatArray, IntArray
from groupwise.lab import EnumeratedWorld, ExactValues, TabularPolicy, remember, solve_exactly

MAX_COMPANY = 200
"""Others in a group up to which their number is summed over."""


@dataclass(frozen=True, kw_only=True)
class LevelTheory:
    """Sums over the steps of a rollout, by their probability; divided by `power` they are shares."""

    bias: float
    """Of the squared bias."""
    variance: float
    """Of the variance."""
    hidden: float
    """Of Var(V | C_k): the squared bias of very large groups."""
    own_noise: float
    """Of Var(R | x), which no baseline removes."""
    power: float
    """Of the squared true advantage."""
    company: float
    """Mean number of others that a step is compared with."""


def foresee_level(
    world: EnumeratedWorld, policy: TabularPolicy, *, depth: int | None, rollouts: int, gamma: float
) -> LevelTheory:
    """Error of the credit that compares steps by their text and `depth` texts before it; None = by the whole state.

    Args:
        world: a world whose views show nothing of the past.
        policy: who plays.
        depth: past texts of the label.
        rollouts: rollouts of a group.
        gamma: the discount.
    """
    window = max(depth or 0, policy.window)
    wide = remember(world, window, with_actions=policy.window > 0)
    values = solve_exactly(wide, policy, gamma=gamma)
    label = _label_states(wide, depth)
    chance = values.visits[:, :, None] * values.probability  # of a step (t, s, a)
    moment = _find_second_moments(wide, values, gamma)
    own = moment - values.action_value**2
    visits = np.bincount(label, weights=values.visits.sum(axis=0))
    mean = np.bincount(label, weights=(values.visits * values.value[:-1]).sum(axis=0)) / np.where(visits, visits, 1)
    square = np.bincount(label, weights=(chance * moment).sum(axis=(0, 2))) / np.where(visits, visits, 1)
    spread = np.maximum(square - mean**2, 0.0)[label][None, :, None]
    level = mean[label][None, :, None]
    inverse, inverse_square = (
        np.where(_is_short(wide, depth), 1.0, part[label])[None, :, None]
        for part in _expect_inverses(visits * (rollouts - 1))
    )
    beyond, distance = values.value[:-1, :, None] - level, values.action_value - level
    bias = (beyond - distance * inverse) ** 2
    variance = (1 - 2 * inverse + inverse_square) * own + (inverse - inverse_square) * spread
    variance = variance + distance**2 * (inverse_square - inverse**2)  # groups of one label differ in their size
    return LevelTheory(
        bias=float((chance * bias).sum()),
        variance=float((chance * variance).sum()),
        hidden=float((chance * beyond**2).sum()),
        own_noise=float((chance * own).sum()),
        power=float((chance * values.advantage**2).sum()),
        company=float((visits[label] * (rollouts - 1) * values.visits).sum() / values.visits.sum()),
    )


def _label_states(world: EnumeratedWorld, depth: int | None) -> IntArray:
    """What each state is compared by (S)."""
    if depth is None:
        names = [getattr(name, "state", name) for name in world.states]
    else:
        seen = [world.views[code].shorten(depth) for code in world.view]
        names = [(view.text, *(text for text, _ in view.past)) for view in seen]
    codes = {name: code for code, name in enumerate(dict.fromkeys(names))}
    return np.array([codes[name] for name in names], dtype=np.int64)


def _is_short(world: EnumeratedWorld, depth: int | None) -> BoolArray:
    """Whether a state comes before step `depth`, so that its steps have no group there and get 0 (S)."""
    return np.array([len(world.views[code].past) < (depth or 0) for code in world.view])


def _find_second_moments(world: EnumeratedWorld, values: ExactValues, gamma: float) -> FloatArray:
    """E[R^2] after each action (T, S, A), from the last step backwards."""
    moments = np.zeros_like(values.action_value)
    later = np.zeros(len(world.states) + 1)
    for step in reversed(range(world.horizon)):
        at = world.at_step(step)
        reward, following = world.reward[at], world.following[at]
        to_come = np.append(values.value[step + 1], 0.0)[following]
        squares = reward**2 + 2 * reward * gamma * to_come + gamma**2 * later[following]
        moments[step] = (world.chance[at] * squares).sum(axis=-1)
        later = np.append((values.probability * moments[step]).sum(axis=-1), 0.0)
    return moments


def _expect_inverses(company: FloatArray) -> tuple[FloatArray, FloatArray]:
    """E[1/n] and E[1/n^2] of n = 1 + a Poisson number of others, for each mean number."""
    mean = np.clip(company, 1e-12, MAX_COMPANY / 2)[:, None]
    number = np.arange(MAX_COMPANY + 1)
    logs = number * np.log(mean) - mean - np.cumsum(np.log(np.maximum(number, 1)))
    share = np.exp(logs)
    return (share / (1 + number)).sum(axis=1), (share / (1 + number) ** 2).sum(axis=1)
