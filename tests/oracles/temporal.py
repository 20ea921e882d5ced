"""Oracles of GAGPO, HGAE and its shrunken sister: a value for each step, then one difference after the other.

In exact fractions of the recorded returns, so that a common level of returns costs no digit: the reward of a step is
what its return has beyond the discounted next one.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction

from tests.oracles.history import states_back
from tests.oracles.rows import Result, Row, Step, by_rollout, by_task, returns_to_go, spread, steps_of

EPS = 1e-6

Value = tuple[Fraction, bool]
"""What a step's situation is worth, and whether another step tells."""


def gagpo(
    rows: list[Row],
    *,
    gamma: float = 0.95,
    lam: float = 0.95,
    scale_by: str = "task",
    truncated: str = "zero",
    invalid_penalty: float = 0.1,
) -> Result:
    """A = sum_l (gamma lam)^l (r + gamma V(s') - V(s)), V(s) the mean return of the visits to s.

    Example (numbers, Routes, gamma 0.9): V(s0) = 5.13, V(s1) = 6, V(s2) = 10; at lam 0, A's first step has 0.9 x 6 -
    5.13 = 0.27, as has B's, which is not blamed for the second.
    """
    steps, ahead = read_steps(rows, gamma, invalid_penalty)

    def value(step: Step) -> Value:
        visits = [s for s in steps if step.state is not None and (s.task, s.state) == (step.task, step.state)]
        return average(step, visits, ahead)

    return differences(rows, steps, ahead, value, gamma=gamma, lam=lam, scale_by=scale_by, truncated=truncated)


def hgae(
    rows: list[Row],
    *,
    depth: int = 2,
    alpha: float = 1.0,
    gamma: float = 0.95,
    lam: float = 0.95,
    leave_out: bool = False,
    scale_by: str = "task",
    truncated: str = "zero",
    invalid_penalty: float = 0.1,
) -> Result:
    """The same with V = sum_k w_k V_k / sum_k w_k, V_k over steps that share the state and k before it.

    Example (numbers, Routes): A's second step shares (s0, s1) with B's: V_0 = 6, V_1 = 4.5, V = (6 + 2 x 4.5) / 3 = 5;
    its own return is 9: 4.
    """
    steps, ahead = read_steps(rows, gamma, invalid_penalty)
    place = {(step.task, step.rollout, step.index): step for step in steps}
    contexts = [{step: states_back(step, level, place) for step in steps} for level in range(depth + 1)]

    def value(step: Step) -> Value:
        entries: list[tuple[Fraction, Fraction]] = []
        for level, context in enumerate(contexts):
            if context[step] is None:
                continue
            members = [s for s in steps if s.task == step.task and context[s] == context[step]]
            if len(members) > 1:
                counted = [s for s in members if s is not step] if leave_out else members
                entries.append((Fraction(float(level + 1) ** alpha), average(step, counted, ahead)[0]))
        if not entries:
            return ahead[step], False
        return sum(w * v for w, v in entries) / sum(w for w, _ in entries), True

    return differences(rows, steps, ahead, value, gamma=gamma, lam=lam, scale_by=scale_by, truncated=truncated)


def shrunk_hgae(
    rows: list[Row],
    *,
    depth: int = 2,
    strength: float = 8.0,
    gamma: float = 1.0,
    lam: float = 0.0,
    scale_by: str = "task",
    truncated: str = "zero",
    invalid_penalty: float = 0.1,
) -> Result:
    """The same with values that are drawn towards coarser ones: each as `strength` further steps of the finer group.

    Example (numbers, GAGPO, strength 1): the nine returns have mean 6.8322, s1's three 6: (18 + 6.8322) / 4 = 6.2081;
    the two after s0 have 4.5: (9 + 6.2081) / 3 = 5.0694.
    """
    steps, ahead = read_steps(rows, gamma, invalid_penalty)
    place = {(step.task, step.rollout, step.index): step for step in steps}
    contexts = [{step: states_back(step, level, place) for step in steps} for level in range(depth + 1)]

    def value(step: Step) -> Value:
        everybody = [ahead[s] for s in steps if s.task == step.task]
        worth = sum(everybody) / Fraction(len(everybody))
        for context in contexts:
            if context[step] is not None:
                own = [ahead[s] for s in steps if s.task == step.task and context[s] == context[step]]
                # Without strength a lone step is worth its own return exactly.
                worth = (sum(own) + Fraction(strength) * worth) / (len(own) + Fraction(strength))
        return (worth, True) if len(everybody) > 1 else (ahead[step], False)

    return differences(rows, steps, ahead, value, gamma=gamma, lam=lam, scale_by=scale_by, truncated=truncated)


def read_steps(rows: list[Row], gamma: float, invalid_penalty: float) -> tuple[list[Step], dict[Step, Fraction]]:
    """The steps, malformed ones paid less, and their returns."""
    steps = [
        replace(step, reward=step.reward - invalid_penalty) if step.is_malformed else step for step in steps_of(rows)
    ]
    return steps, {step: Fraction(value) for step, value in returns_to_go(steps, gamma).items()}


def average(step: Step, members: list[Step], ahead: dict[Step, Fraction]) -> Value:
    """The mean return of the members; the step's own where there is no other."""
    if not any(member is not step for member in members):
        return ahead[step], False
    return sum(ahead[member] for member in members) / Fraction(len(members)), True


def differences(
    rows: list[Row],
    steps: list[Step],
    ahead: dict[Step, Fraction],
    value: Callable[[Step], Value],
    *,
    gamma: float,
    lam: float,
    scale_by: str,
    truncated: str,
) -> Result:
    """Sum the differences of each rollout from its end back, and divide."""
    values = {step: value(step) for step in steps}
    credit: dict[Step, Fraction] = {}
    compared: dict[Step, bool] = {}
    discount, share = Fraction(gamma), Fraction(gamma) * Fraction(lam)
    for path in by_rollout(steps).values():
        is_cut = path[-1].row.get("stop") == "truncated" and truncated == "value"
        after_return, (after, known) = Fraction(0), values[path[-1]] if is_cut else (Fraction(0), False)
        later, is_known = Fraction(0), False
        for step in reversed(path):
            worth, own = values[step]
            reward = ahead[step] - discount * after_return
            later = reward + discount * after - worth + share * later
            # At lam 1 the values on the way cancel, but for the one after the limit; at lam 0 two are left.
            is_known = bool((lam < 1 and gamma and known) or (share and is_known) or (is_cut and gamma and known))
            credit[step], compared[step] = later, own or is_known
            is_known, is_cut = is_known if lam == 1 else is_known or own, False
            after_return, after, known = ahead[step], worth, own
    if scale_by == "none":
        return spread(rows, steps, lambda step: (float(credit[step]), compared[step]))
    return spread(rows, steps, lambda step: _divide(step, steps, credit, compared[step], scale_by))


def _divide(
    step: Step, steps: list[Step], credit: dict[Step, Fraction], is_compared: bool, scale_by: str
) -> tuple[float, bool]:
    """Credit over the root mean square of its task's steps, or its state's."""
    group = [step] if scale_by == "state" and step.state is None else by_task(steps)[step.task]
    if scale_by == "state":
        group = [other for other in group if other.state == step.state]
    numbers = [credit[other] for other in group]
    if len(numbers) == 1:
        return 0.0, False
    square = sum(number**2 for number in numbers) / len(numbers)
    return float(credit[step] / Fraction(take_root(square) + EPS)), is_compared


def take_root(square: Fraction) -> float:
    """The root of a number that may be too large or too small for a float."""
    if not square:
        return 0.0
    power = (square.numerator.bit_length() - square.denominator.bit_length()) // 2
    return math.ldexp(math.sqrt(square / Fraction(4) ** power), power)
