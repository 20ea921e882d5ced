"""Oracles of VGPO's estimator and of COPO: loops over rollouts, and answers counted one by one."""

from __future__ import annotations

import math
from collections.abc import Sequence

from tests.oracles.episode import grpo
from tests.oracles.rows import Result, Row, episode_returns, steps_of


def after_vgpo(rows: list[Row], *, k: float = 0.1) -> Result:
    """z + k Q; eight ones: 0.1 each; two ones among eight: 1.720182 and -0.540061."""
    values, compared = grpo(rows)
    earned = episode_returns(steps_of(rows))
    return [value + k * earned[row["task"], row["rollout"]] for row, value in zip(rows, values, strict=True)], compared


def answer_entropy(answers: Sequence[object]) -> float:
    """In bits; 12 four times, 7 and 5 once each: 1.251629."""
    shares = [sum(other == answer for other in answers) / len(answers) for answer in set(answers)]
    return -math.fsum(share * math.log2(share) for share in shares)


def blend(mode: str, *, entropy: float, local: float, earned: float, gain: float, midpoint: float) -> float:
    """w; entropy 1.251629, gain 5, midpoint 1: 0.778707; entropy 0: 0.006693."""
    soft = 1 / (1 + math.exp(-gain * (entropy - midpoint)))
    return {
        "soft": soft,
        "soft_forced": soft if local != 0 else 0.0,
        "forced": 1.0 if local != 0 else 0.0,
        "zero_only": 1.0 if earned != 0 else 0.0,
        "global_only": 0.0,
    }[mode]


def copo(
    rows: list[Row],
    *,
    mode: str = "soft_forced",
    gain: float = 5.0,
    midpoint: float = 1.0,
    consistency: bool = True,
    eps: float = 1e-6,
) -> tuple[Result, list[float]]:
    """The credit within tasks and that between them, each times its weight.

    Six rollouts with the answers 12 four times, 7 and 5, the first four right: lam 0.322377, R 0.397669; beside a task
    that is all right and one that is all wrong: -0.135499, 1.060839, -0.925340.
    """
    local, compared = grpo(rows, eps=eps)
    earned = episode_returns(steps_of(rows))
    answers = dict.fromkeys(earned, "nothing")
    for step in sorted(steps_of(rows), key=lambda step: step.index):
        if step.row["answer"] not in (None, ""):
            answers[step.who] = str(step.row["answer"])
    tasks = list(dict.fromkeys(task for task, _ in earned))
    entropy, brought = {}, {}
    for task in tasks:
        own = [value for (of, _), value in earned.items() if of == task]
        entropy[task] = answer_entropy([answer for (of, _), answer in answers.items() if of == task])
        lam = (1 - 1 / len(own)) / math.log2(len(own)) if len(own) > 1 else 0.0
        brought[task] = math.fsum(own) / len(own) * (1 - lam * entropy[task] if consistency else 1)
    mean = math.fsum(brought.values()) / len(tasks)
    deviation = math.sqrt(math.fsum((value - mean) ** 2 for value in brought.values()) / max(len(tasks) - 1, 1))
    is_flat = max(brought.values()) - min(brought.values()) < 1e-9
    within, between = [], []
    for row, value in zip(rows, local, strict=True):
        task, who = row["task"], (row["task"], row["rollout"])
        w = blend(mode, entropy=entropy[task], local=value, earned=earned[who], gain=gain, midpoint=midpoint)
        within.append(w * value)
        between.append(0.0 if is_flat else (1 - w) * (brought[task] - mean) / (deviation + eps))
    return (within, compared), between


def copo_off(rows: list[Row], *, mode: str) -> Result:
    """Without tasks against each other it is GRPO's credit."""
    assert mode == "off"
    return grpo(rows)
