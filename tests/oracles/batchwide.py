"""Oracles of the methods that look beyond the task: REINFORCE++, DGPO and A-GRAE."""

from __future__ import annotations

import math
from fractions import Fraction

from tests.oracles.episode import dr_grpo, grpo
from tests.oracles.rows import (
    Result,
    Row,
    Step,
    Who,
    all_equal,
    by_rollout,
    deviation,
    episode_returns,
    mean,
    number,
    returns_to_go,
    spread,
    steps_of,
)


def reinforce_pp(rows: list[Row], *, gamma: float = 1.0, eps: float = 1e-8) -> Result:
    """The return-to-go, whitened over all tokens of the table that train (numbers, REINFORCE++).

    Example: returns 1, 0, 1, 1 with 2, 4, 1, 3 tokens: token mean 0.6, variance 2.4 / 9, so 0.4 / 0.5164 = 0.7746.
    """
    steps = steps_of(rows)
    ahead = returns_to_go(steps, gamma)
    white, is_compared = whiten_tokens([ahead[step] for step in steps], [step.trained_tokens for step in steps], eps)
    credit = dict(zip(steps, white, strict=True))
    return spread(rows, steps, lambda step: (credit[step], is_compared))


def reinforce_pp_baseline(rows: list[Row], *, eps: float = 1e-8) -> Result:
    """The return minus the mean of the task's rollouts, whitened over all tokens that train (numbers, REINFORCE++).

    Example: returns 1, 0 and 1, 1 in two tasks, tokens 2, 4, 1, 3: centred 0.5, -0.5, 0, 0; token mean -0.1, variance
    1.4 / 9, so the first gets 0.6 / 0.39441 = 1.5213 and the two equal ones 0.1 / 0.39441 = 0.2535.
    """
    steps = steps_of(rows)
    centred, _ = dr_grpo(rows)
    values = [centred[step.positions[0]] for step in steps]
    white, is_compared = whiten_tokens(values, [step.trained_tokens for step in steps], eps)
    credit = dict(zip(steps, white, strict=True))
    return spread(rows, steps, lambda step: (credit[step], is_compared))


def whiten_tokens(values: list[float], tokens: list[int], eps: float) -> tuple[list[float], bool]:
    """(v - token mean) / sqrt(token variance + eps), variance over tokens - 1, in exact fractions.

    A value on no token is moved and scaled with the others. Example: values 1 and 0 on one token each: mean 0.5,
    variance 0.5, so +-0.5 / 0.70711 = +-0.7071; a 2 on no token beside them gets 1.5 / 0.70711 = 2.1213.
    """
    total = sum(tokens)
    if total < 2:
        return [0.0] * len(values), False
    if all_equal([value for value, weight in zip(values, tokens, strict=True) if weight]):
        return [0.0] * len(values), True
    centre = sum((Fraction(v) * w for v, w in zip(values, tokens, strict=True)), Fraction(0)) / total
    squares = sum(((Fraction(v) - centre) ** 2 * w for v, w in zip(values, tokens, strict=True)), Fraction(0))
    width = math.sqrt(float(squares / (total - 1)) + eps)
    return [float(Fraction(value) - centre) / width for value in values], True


def dgpo(rows: list[Row], *, temperature: float = 2.0, reference: bool = False) -> Result:
    """(r - mu) / mean|r - mu|, times the task's weight B_v softmax(-acc / T) (numbers, DGPO).

    Example: returns 1, 0, 0, 1, 0, 0, 0, 0: mu = 0.25 and mean|r - mu| = 0.375, so 2 and -0.6667; beside a task of
    accuracy 0.75 its weight is 2 / (1 + exp(-0.5 / 2)) = 1.124353.
    """
    steps = steps_of(rows)
    returns = episode_returns(steps)
    tasks: dict[object, list[float]] = {}
    for (task, _), value in returns.items():
        tasks.setdefault(task, []).append(value)
    mixed = {task for task, numbers in tasks.items() if not all_equal(numbers)}
    weight = _difficulty_weights(_accuracies(steps, returns), mixed, temperature)
    all_tokens = sum(step.trained_tokens for step in steps)
    mixed_tokens = sum(step.trained_tokens for step in steps if step.task in mixed)
    idle_factor = all_tokens / mixed_tokens if mixed_tokens else 1.0

    def credit(step: Step) -> tuple[float, bool]:
        numbers = tasks[step.task]
        if step.task not in mixed:
            return 0.0, len(numbers) > 1
        size = len(numbers)
        width = math.fsum(abs(deviation(value, numbers)) for value in numbers) + (1e-4 if reference else 1e-9)
        balanced = size * deviation(returns[step.who], numbers) / width
        return balanced * weight[step.task] * idle_factor, True

    return spread(rows, steps, credit)


def _accuracies(steps: list[Step], returns: dict[Who, float]) -> dict[object, float]:
    """Per task, the mean over rollouts of the accuracy where the table has it, else of the return."""
    per_task: dict[object, list[float]] = {}
    for who, path in by_rollout(steps).items():
        has_accuracy = "accuracy" in path[0].row
        own = mean([number(step.row["accuracy"]) for step in path]) if has_accuracy else returns[who]
        per_task.setdefault(who[0], []).append(own)
    return {task: mean(values) for task, values in per_task.items()}


def _difficulty_weights(accuracy: dict[object, float], mixed: set[object], temperature: float) -> dict[object, float]:
    """B_v softmax(-acc / T) over the mixed tasks, an accuracy of exactly 0 read as 1.

    Example at T = 2: accuracies 0.25 and 0.75 give 2 / (1 + exp(-0.25)) = 1.124353 and 0.875647.
    """
    logit = {task: -(accuracy[task] or 1.0) / temperature for task in mixed}
    top = max(logit.values(), default=0.0)
    total = math.fsum(math.exp(value - top) for value in logit.values())
    return {task: len(mixed) * math.exp(value - top) / total for task, value in logit.items()}


def a_grae(rows: list[Row], *, alpha: float = 1.0, reference: bool = False) -> Result:
    """z w / (2 sqrt(p)) + z (1 - w) / (2 sqrt(1 - p)), positive credit times min(1, w / alpha) (numbers, A-GRAE).

    The release divides the second term by 1 - sqrt(p) and adds 1e-6 to both denominators. Example: z = 1.620182,
    p = 0.25, w = 0.5: 0.810091 + 0.467706 = 1.277797, attenuated 0.638899; the release: 0.810089 + 0.810089 = 1.620178,
    attenuated 0.810089.
    """
    steps = steps_of(rows)
    scores, compared = grpo(rows)
    returns = episode_returns(steps)
    overall = mean(list(returns.values()))

    def credit(step: Step) -> tuple[float, bool]:
        own = step.positions[0]
        rate = mean([value for (task, _), value in returns.items() if task == step.task])
        if rate in (0.0, 1.0):
            return 0.0, compared[own]
        hard, easy = math.sqrt(rate), math.sqrt(1 - rate)
        if reference:
            hard, easy = math.sqrt(rate) + 1e-6, 1 - math.sqrt(rate) + 1e-6
        value = overall / 2 * scores[own] / hard + (1 - overall) / 2 * scores[own] / easy
        return (value * min(1.0, overall / alpha) if value > 0 else value), compared[own]

    return spread(rows, steps, credit)
