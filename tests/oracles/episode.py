"""Oracles of the methods that compare whole rollouts of one task: one number each, then all their steps share it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tests.oracles.rows import (
    Result,
    Row,
    Step,
    all_equal,
    by_task,
    deviation,
    episode_returns,
    spread,
    std,
    steps_of,
    zscore,
)


def grpo(rows: list[Row], *, ddof: int = 1, eps: float = 1e-6, average: str = "rollout", alone: str = "zero") -> Result:
    """A_i = (r_i - mu) / (s + eps) over the rollouts of the task (numbers, GRPO).

    Example: returns 1, 0, 0, 1 have mu = 0.5 and s = sqrt(1/3) = 0.57735, so A = 0.5 / 0.577351 = +-0.8660.
    """
    return against_task(
        rows, lambda own, numbers: zscore(own, numbers, ddof=ddof, eps=eps), average=average, alone=alone
    )


def dr_grpo(rows: list[Row], *, average: str = "rollout", alone: str = "zero") -> Result:
    """A_i = r_i - mu (numbers, Dr. GRPO); example: returns 1, 0, 0, 1 give +-0.5."""
    return against_task(rows, deviation, average=average, alone=alone)


def rloo(rows: list[Row], *, average: str = "rollout", alone: str = "zero") -> Result:
    """A_i = r_i - mean of the others (numbers, RLOO).

    Example: returns 1, 0, 0, 1: the others of the first have mean 1/3, so A = 2/3.
    """

    def against_others(own: float, numbers: Sequence[float]) -> float:
        others = list(numbers)
        others.remove(own)
        return deviation(own, others)

    return against_task(rows, against_others, average=average, alone=alone)


def flow_grpo(rows: list[Row], *, reference: bool = False) -> Result:
    """A = (R_i - mean R) / std R over rollouts; the release takes the statistics over rows (numbers, Flow-GRPO).

    Example: R = 1 with 2 steps and 0 with 4. Rollouts: mean 0.5, std 0.7071, A = +-0.7071. Rows: mean 1/3, std sqrt(2
    (2/3)^2 / 5 + 4 (1/3)^2 / 5) = 0.5164, A = 0.6667 / 0.5164 = 1.2910 and -0.6455.
    """
    return grpo(rows, average="step" if reference else "rollout")


def mc_grpo(rows: list[Row], *, eps: float = 1e-3, reference: bool = False) -> Result:
    """A_i = (r_i - b) / (MAD + eps), b the lower median (numbers, MC-GRPO).

    Where MAD < 1e-3 of the range the scale is the sample std instead (the release keeps MAD + eps).
    Example: 1, 0, 0 has b = 0 and MAD = 0, so the scale is 0.57735 and A = 1.7321, 0, 0; the release: 1000, 0, 0.
    """

    def around_median(own: float, numbers: Sequence[float]) -> float:
        if all_equal(numbers):
            return 0.0
        middle = lower_median(numbers)
        mad = lower_median([abs(value - middle) for value in numbers])
        if not reference and mad < 1e-3 * (max(numbers) - min(numbers)):
            return (own - middle) / (std(numbers, 1) + 1e-9)
        return (own - middle) / (mad + eps)

    return against_task(rows, around_median, average="rollout", alone="zero")


def lower_median(values: Sequence[float]) -> float:
    """The middle value, or the lower of the two middle ones; example: of 3, 1, 2, 4 it is 2."""
    return sorted(values)[(len(values) - 1) // 2]


def ngrpo(
    rows: list[Row], *, best: float = 1.0, virtual: int = 1, eps: float = 1e-6, reference: bool = False
) -> Result:
    """GRPO's z-score with `virtual` members of value `best` added to the statistics (numbers, NGRPO).

    Example: eight zeros and best = 1: mean 1/9, sample std 1/3, so A = -(1/9) / (1/3) = -1/3.
    """
    steps = steps_of(rows)
    returns = episode_returns(steps)

    def credit(step: Step) -> tuple[float, bool]:
        own = returns[step.who]
        real = [value for (task, _), value in returns.items() if task == step.task]
        members = real + [best] * virtual
        if len(real) == 1 and reference:
            return own, False
        if len(members) == 1:
            return 0.0, False
        return zscore(own, members, ddof=1, eps=eps), True

    return spread(rows, steps, credit)


def against_task(
    rows: list[Row], against: Callable[[float, Sequence[float]], float], *, average: str, alone: str
) -> Result:
    """Compare each rollout's return with the task's numbers: one a rollout, or one a step."""
    steps = steps_of(rows)
    returns = episode_returns(steps)
    tasks = by_task(steps)

    def credit(step: Step) -> tuple[float, bool]:
        own = returns[step.who]
        if average == "rollout":
            numbers = [value for (task, _), value in returns.items() if task == step.task]
        else:
            numbers = [returns[other.who] for other in tasks[step.task]]
        if len(numbers) == 1:
            return (own if alone == "raw" else 0.0), False
        return against(own, numbers), True

    return spread(rows, steps, credit)
