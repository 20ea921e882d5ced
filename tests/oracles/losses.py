"""Oracles of the losses: loops over tokens, one number at a time, with slopes worked out by hand.

A slope is the derivative with respect to the token's own logp; where the method stops a gradient, the slope leaves it
out. Every oracle is handed the tokens that train and returns an entry for each.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple


@dataclass(frozen=True)
class Token:
    """A sampled token, with all that a loss may read of it."""

    logp: float
    old: float
    behaviour: float
    ref: float
    entropy: float
    advantage: float
    trains: bool
    sample: int
    step: int
    trajectory: int
    span: int = 0


class Counted(NamedTuple):
    """A value and its slope."""

    value: float
    slope: float


class Surrogated(NamedTuple):
    """A token's loss, its derivative by the ratio, and its derivative by logp where logp stands outside the ratio."""

    value: float
    by_ratio: float
    by_logp: float = 0.0


Tokens = Sequence[Token]
RatioOracle = Callable[[Tokens], list[Counted]]
SurrogateOracle = Callable[[Token, float], Surrogated]
AggregateOracle = Callable[[Tokens], list[float]]


def clamp(x: float, bound: float) -> float:
    return max(-bound, min(bound, x))


def unit_of(token: Token, unit: str) -> object:
    return {
        "span": ("span", token.sample, token.span),
        "sample": ("sample", token.sample),
        "step": ("step", token.trajectory, token.step),
        "trajectory": ("trajectory", token.trajectory),
    }[unit]


def mates(tokens: Tokens, token: Token, unit: str) -> list[Token]:
    """The tokens of the token's unit, itself included."""
    return [other for other in tokens if unit_of(other, unit) == unit_of(token, unit)]


def token_ratio(tokens: Tokens, bound: float = 20.0) -> list[Counted]:
    """rho = exp(logp - old), whose slope is rho, or 0 where the log-ratio is beyond the bound (numbers, Notation)."""
    ratios = []
    for token in tokens:
        change = token.logp - token.old
        rho = math.exp(clamp(change, bound))
        ratios.append(Counted(rho, rho if abs(change) <= bound else 0.0))
    return ratios


def sequence_ratio(tokens: Tokens, unit: str, length: str, bound: float = 10.0) -> list[Counted]:
    """s = exp(mean of the unit's log-ratios), or of their sum; the per-token form has slope s, or L s (3.6).

    Example: log-ratios 0.1, -0.3, 0.05 have mean -0.05, so s = 0.951229 for each of the three.
    """
    ratios = []
    for token in tokens:
        others = mates(tokens, token, unit)
        change = math.fsum(other.logp - other.old for other in others)
        if length == "mean":
            change /= len(others)
        s = math.exp(clamp(change, bound))
        reach = 1 if length == "mean" else len(others)
        ratios.append(Counted(s, reach * s if abs(change) <= bound else 0.0))
    return ratios


def plain(token: Token, rho: float) -> Surrogated:
    return Surrogated(-token.advantage * rho, -token.advantage)


def clip(token: Token, rho: float, *, low: float, high: float, dual: float | None = None) -> Surrogated:
    """The four cases of the clipped surrogate, one by one (numbers, GRPO).

    Example, 0.2/0.28 and dual 3: A = 1: rho 1.5 -> -1.28, 0.5 -> -0.5; A = -1: 0.5 -> 0.8, 1.5 -> 1.5, 5 -> 3.
    """
    A = token.advantage
    if A > 0 and rho > 1 + high:
        return Surrogated(-A * (1 + high), 0.0)
    if A < 0 and rho < 1 - low:
        return Surrogated(-A * (1 - low), 0.0)
    if A < 0 and dual is not None and rho > dual:
        return Surrogated(-A * dual, 0.0)
    return Surrogated(-A * rho, -A)


def cispo(token: Token, rho: float, *, cap: float) -> Surrogated:
    """-sg(min(rho, cap)) A logp: no derivative through the ratio (3.7); lp -0.7, rho 6.05, A 0.5, cap 5 -> 1.75."""
    weight = min(rho, cap)
    return Surrogated(-weight * token.advantage * token.logp, 0.0, -weight * token.advantage)


def sapo(token: Token, rho: float, *, positive: float, negative: float) -> Surrogated:
    """-A (4 / tau) sigmoid(tau (rho - 1)); its derivative by rho is -A sech^2(tau (rho - 1) / 2) (5.1)."""
    tau = positive if token.advantage > 0 else negative
    gate = 4 / tau / (1 + math.exp(-tau * (rho - 1)))
    half = tau * (rho - 1) / 2
    slope = 0.0 if half > 300 else 1 / math.cosh(half) ** 2
    return Surrogated(-token.advantage * gate, -token.advantage * slope)


def reinforce(token: Token, rho: float) -> Surrogated:
    """-A logp, whatever the ratio."""
    return Surrogated(-token.advantage * token.logp, 0.0, -token.advantage)


def rec(
    token: Token, rho: float, *, region: str, weighted: bool, low: float, high: float, far: tuple[float, float] = (0, 0)
) -> Surrogated:
    """-A logp, of what is kept, times the ratio as a constant; the rules of 5.5 read one by one."""
    A, inside = token.advantage, 1 - low <= rho <= 1 + high
    kept = {
        "one_side": (A >= 0 and rho <= 1 + high) or (A <= 0 and rho >= 1 - low),
        "two_side": inside,
        "ring": inside or (A >= 0 and rho <= 1 - far[0]) or (A <= 0 and rho >= 1 + far[1]),
    }[region]
    weight = (rho if weighted else 1.0) if kept else 0.0
    return Surrogated(-weight * A * token.logp, 0.0, -weight * A)


def square_change(token: Token, bound: float = 20.0) -> Counted:
    """(logp - old)^2 and its slope; logp -0.4, old -0.6: 0.04 and 0.4."""
    change = token.logp - token.old
    return Counted(clamp(change, bound) ** 2, 2 * change if abs(change) <= bound else 0.0)


def square_drift(tokens: Tokens, token: Token, bound: float = 20.0) -> Counted:
    """(sum over the step of logp - old)^2 / (2 n), and what all n tokens' values change by with this one's logp."""
    answer = mates(tokens, token, "step")
    drift = math.fsum(clamp(other.logp - other.old, bound) for other in answer)
    is_free = abs(token.logp - token.old) <= bound
    return Counted(drift**2 / (2 * len(answer)), drift if is_free else 0.0)


def log_weight(tokens: Tokens, token: Token, unit: str) -> float:
    """sum over the unit of old - behaviour (numbers, Corrections)."""
    others = [token] if unit == "token" else mates(tokens, token, unit)
    return math.fsum(other.old - other.behaviour for other in others)


def truncate(tokens: Tokens, unit: str, high: float) -> list[float]:
    return [min(math.exp(clamp(log_weight(tokens, token, unit), 20)), high) for token in tokens]


def mask(tokens: Tokens, unit: str, low: float, high: float) -> list[float]:
    weights = [math.exp(clamp(log_weight(tokens, token, unit), 20)) for token in tokens]
    return [weight if low <= weight <= high else 0.0 for weight in weights]


def reject(tokens: Tokens, unit: str, low: float, high: float) -> list[float]:
    means = [log_weight(tokens, token, unit) / len(mates(tokens, token, unit)) for token in tokens]
    return [1.0 if low <= math.exp(clamp(mean, 20)) <= high else 0.0 for mean in means]


def off_policy_mask(tokens: Tokens, unit: str, max_drop: float) -> list[float]:
    kept = []
    for token in tokens:
        others = mates(tokens, token, unit)
        drop = math.fsum(other.behaviour - other.logp for other in others) / len(others)
        kept.append(0.0 if token.advantage < 0 and drop > max_drop else 1.0)
    return kept


def kl(token: Token, estimator: str, gradient: str, bound: float = 20.0, cap: float = 10.0) -> Counted:
    """k1 = -d, k2 = d^2 / 2, k3 = e^d - d - 1 and their slopes 1, -d, 1 - e^d (numbers, KL).

    Example: d = 0.2: -0.2, 0.02, 0.021403; slopes 1, -0.2, -0.221403.
    """
    raw = token.ref - token.logp
    d = clamp(raw, bound)
    inside = abs(raw) <= bound
    k3 = math.exp(d) - d - 1
    value, slope = {
        "k1": (-d, 1.0),
        "k2": (d * d / 2, -d),
        "k3": (min(k3, cap), 1 - math.exp(d) if k3 <= cap else 0.0),
    }[estimator]
    if not inside:
        slope = 0.0
    if gradient == "straight_through":
        return Counted(value, -d if inside else 0.0)
    if gradient == "unbiased":
        rho = token_ratio([token], bound)[0]
        return Counted(rho.value * value, rho.slope * value + rho.value * slope)
    return Counted(value, slope)


def num(tokens: Tokens, unit: str) -> int:
    return len({unit_of(token, unit) for token in tokens})


def token_mean(tokens: Tokens) -> list[float]:
    """How much each token's loss counts: 1 / tokens. Example of 1.1, losses [1, 1] and [2, 2, 2, 2]: 10 / 6."""
    return [1 / len(tokens) for _ in tokens]


def sequence_mean(tokens: Tokens) -> list[float]:
    """1 / (L_i samples); example of 1.1: (1 + 2) / 2 = 1.5."""
    return [1 / len(mates(tokens, token, "sample")) / num(tokens, "sample") for token in tokens]


def sequence_sum(tokens: Tokens) -> list[float]:
    """1 / samples; example of 1.1: (2 + 8) / 2 = 5."""
    return [1 / num(tokens, "sample") for _ in tokens]


def constant_length(tokens: Tokens, length: int, per_sequence: bool) -> list[float]:
    """1 / (samples length); example of 1.1, length 8: 10 / 16 = 0.625; without the samples 10 / 8 = 1.25."""
    return [1 / length / (num(tokens, "sample") if per_sequence else 1) for _ in tokens]


def step_mean(tokens: Tokens) -> list[float]:
    return [1 / len(mates(tokens, token, "step")) / num(tokens, "step") for token in tokens]


def trajectory_mean(tokens: Tokens, within: str) -> list[float]:
    shares = []
    for token in tokens:
        others = mates(tokens, token, "trajectory")
        counted = len(others) if within == "token" else num(others, "step") * len(mates(tokens, token, "step"))
        shares.append(1 / counted / num(tokens, "trajectory"))
    return shares
