"""Rewards as slow loops over plain dictionaries, written from their sources; nothing here comes from groupwise.

A step is {"reward", "well_formed", "accepted", "length", "info"}; a rollout is a list of steps and whether it was
solved.
"""

from __future__ import annotations

import math
from typing import Any

Steps = list[dict[str, Any]]


def environment(steps: Steps, solved: bool, *, weight: float) -> list[float]:
    paid = []
    for step in steps:
        paid.append(weight * step["reward"])
    return paid


def outcome(steps: Steps, solved: bool, *, solved_pays: float, failed_pays: float) -> list[float]:
    paid = [0.0 for _ in steps]
    if paid:
        paid[len(paid) - 1] = solved_pays if solved else failed_pays
    return paid


def step(steps: Steps, solved: bool, *, each: float) -> list[float]:
    return [each for _ in steps]


def malformed_response(steps: Steps, solved: bool, *, penalty: float) -> list[float]:
    paid = []
    for one in steps:
        paid.append(0.0)
        if not one["well_formed"]:
            paid[-1] -= penalty
    return paid


def refused_action(steps: Steps, solved: bool, *, penalty: float) -> list[float]:
    paid = []
    for one in steps:
        paid.append(0.0)
        if one["well_formed"] and not one["accepted"]:
            paid[-1] -= penalty
    return paid


def grade(steps: Steps, solved: bool, *, weight: float, min_grade: float) -> list[float]:
    paid = [0.0 for _ in steps]
    earned = math.fsum(row["reward"] for row in steps)
    if paid and earned >= min_grade:
        paid[len(paid) - 1] = weight * earned
    return paid


def form(steps: Steps, solved: bool, *, kept: float, broken: float, per: str) -> list[float]:
    paid = []
    if per == "whole":
        paid = [0.0 for _ in steps]
        if paid:
            paid[len(paid) - 1] = kept
        for row in steps:
            if not row["well_formed"]:
                paid[len(paid) - 1] = broken
        return paid
    for one in steps:
        amount = broken
        if one["well_formed"]:
            amount = kept
        if per == "rollout":
            amount = amount / len(steps)
        paid.append(amount)
    return paid


def overlong(steps: Steps, solved: bool, *, limit: int, buffer: int, weight: float) -> list[float]:
    """DAPO, eq. 13: L_max = limit, L_cache = buffer, |y| = length.

    R_length(y) = 0                                  if |y| <= L_max - L_cache
                  ((L_max - L_cache) - |y|) / L_cache  if L_max - L_cache < |y| <= L_max
                  -1                                 if L_max < |y|
    """
    paid = []
    for one in steps:
        if one["length"] <= limit - buffer:
            paid.append(0.0)
        elif limit - buffer < one["length"] <= limit:
            paid.append(weight * ((limit - buffer) - one["length"]) / buffer)
        else:
            paid.append(-weight)
    return paid


def brevity(steps: Steps, solved: bool, *, limit: int, weight: float) -> list[float]:
    """R^3: r_len = max(0, 1 - l / L_max) for correct responses, l = response length in tokens (numbers, R^3)."""
    tokens = 0
    for one in steps:
        tokens += one["length"]
    paid = [0.0 for _ in steps]
    if steps and solved and tokens < limit:
        paid[-1] = weight * (1 - tokens / limit)
    return paid


def length(steps: Steps, solved: bool, *, each: float, free: int) -> list[float]:
    paid = []
    for one in steps:
        amount = 0.0
        for token in range(one["length"]):
            if token >= free:
                amount += each
        paid.append(amount)
    return paid


def tokens(steps: Steps, solved: bool, *, weight: float) -> list[float]:
    """A function of the user's that counts tokens, weighed."""
    return [weight * step["length"] for step in steps]


def ladder(steps: Steps, solved: bool, *, rungs: list[float]) -> list[float]:
    """RSVR of SRPO: the last step that answered; exact pays 1, else the rung of the levels that matched."""
    paid, amount = [0.0 for _ in steps], 0.0
    for step in steps:
        if "matched" in step["info"]:
            reached = rungs[: step["info"]["matched"] + 1][-1]
            amount = 0.0 if not step["well_formed"] else 1.0 if step["info"]["exact"] else reached
    if paid:
        paid[-1] = amount
    return paid
