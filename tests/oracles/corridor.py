"""Oracle of EPO: one token at a time, and a past that is kept as it came, update by update."""

from __future__ import annotations

import math
from collections.abc import Sequence

from tests.oracles.losses import Counted, Token


def phase(done: int, updates: int) -> float:
    """With m = updates / 2; 150 updates: 1 at 0, 0.8278 at 74, 0.8 at 75, 0.0398 at 150."""
    m = updates / 2
    if done < m:
        return 1 - 0.2 * (1 - math.exp(-2 * done / m))
    return 0.8 * math.exp(-3 * (done - m) / m)


def penalty(entropy: float, usual: float, *, low: float, high: float, outside: float, form: str, floor: float) -> float:
    """Constant, usual 1, 0.8 to 1.2, penalty 0.1: entropies 0.1, 0.4, 0.9, 2.3 cost 0.1, 0.1, 0, 0.1."""
    if usual <= 0 or low * usual < entropy < high * usual:
        return 0.0
    if form == "constant":
        return outside
    away = entropy - high * usual if entropy >= high * usual else low * usual - entropy
    return outside * away / max(usual, floor)


def corridor(
    tokens: Sequence[Token],
    token: Token,
    usual: float,
    *,
    smoothing: float,
    weight_of_phase: float,
    low: float,
    high: float,
    outside: float,
    form: str,
    over: str,
    floor: float,
) -> Counted:
    """The penalty's value at a token, and its slope by the entropy that is held against the past."""
    mates = [token]
    if over == "step":
        mates = [other for other in tokens if (other.trajectory, other.step) == (token.trajectory, token.step)]
    entropy = math.fsum(other.entropy for other in mates) / len(mates)
    settings = {"low": low, "high": high, "outside": outside, "form": form, "floor": floor}
    value = -token.entropy + smoothing * weight_of_phase * penalty(entropy, usual, **settings)  # type: ignore[arg-type]
    slope = 0.0
    if form == "hinge" and usual > 0:
        slope = (entropy > high * usual) - (entropy < low * usual)
    return Counted(value, smoothing * weight_of_phase * outside * slope / max(usual, floor))


def usual_by_index(past: Sequence[Sequence[Sequence[tuple[int, Sequence[float]]]]], index: int) -> float:
    """What was usual at a step; `past` has the updates, each its rollouts, each its steps: index and entropies."""
    means = []
    for update in past:
        entropies = [entropy for rollout in update for at, own in rollout if at == index for entropy in own]
        if entropies:
            means.append(math.fsum(entropies) / len(entropies))
    return sum(means) / len(means) if means else 0.0
