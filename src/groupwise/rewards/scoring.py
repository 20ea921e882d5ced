"""Scoring a trajectory: its step rewards become the sum of what each part pays."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import cast

from groupwise.core.column_checks import LARGEST_REWARD
from groupwise.core.errors import RecordError
from groupwise.core.parts.part import Part, kind_of
from groupwise.core.records import Step, Trajectory
from groupwise.rewards.reward import ReadsResponses, Reward

ReadResponse = Callable[[Sequence[int]], str]
"""What a response says, of its token ids."""


def score_trajectory(
    trajectory: Trajectory, rewards: Sequence[Reward], *, read_response: ReadResponse | None = None
) -> Trajectory:
    """The trajectory as the parts pay it.

    Its step rewards are the sums over the parts. Its scores gain the total of each part under the part's kind, and
    `return`, the total of all. A part with a `solved_at` says whether the task was solved (`success`), in the
    environment's place. Where some parts judge and others shape, `accuracy` is what the judges paid: filters
    that ask whether a task still teaches go by that, since a length penalty makes equal answers differ.

    Score an attempt once, when it was played: the environment's own rewards are not kept beside the new ones. A reward
    that is not finite is an error that names task, attempt, step and part, be it the environment's own and read by
    none of the parts. `read_response` is for parts that read what was said (`reads_responses`); without it, they go by
    actions.
    """
    if trajectory.outcome is not None:
        raise RecordError(
            f"{_name_attempt(trajectory)}: it has an outcome of its own, {trajectory.outcome}, which would outweigh "
            "the rewards of its steps; leave the outcome out, or the rewards"
        )
    for step in trajectory.steps:
        _check_amount(trajectory, step, step.reward, "the environment's own reward")
    payments = [(part, _pay(trajectory, part, read_response)) for part in rewards]
    totals = [math.fsum(amounts) for amounts in zip(*(amounts for _, amounts in payments), strict=True)]
    totals = totals if payments else [0.0] * len(trajectory.steps)
    scores: dict[str, float] = {}
    for part, amounts in payments:
        scores[_name_kind(part)] = scores.get(_name_kind(part), 0.0) + math.fsum(amounts)
        solved_at: float | None = getattr(part, "solved_at", None)
        if solved_at is not None:
            scores["success"] = float(math.fsum(amounts) >= solved_at)
    judged = [amounts for part, amounts in payments if getattr(part, "judges", False)]
    if 0 < len(judged) < len(payments):
        scores["accuracy"] = math.fsum(amount for amounts in judged for amount in amounts)
    return replace(
        trajectory,
        steps=tuple(
            step if total == step.reward else replace(step, reward=total)
            for step, total in zip(trajectory.steps, totals, strict=True)
        ),
        scores={**trajectory.scores, **scores, "return": math.fsum(totals)},
    )


def _pay(trajectory: Trajectory, part: Reward, read_response: ReadResponse | None) -> tuple[float, ...]:
    if read_response is not None and getattr(part, "reads_responses", False):
        responses = [read_response(step.response_ids) for step in trajectory.steps]
        amounts = tuple(float(amount) for amount in cast(ReadsResponses, part).pay(trajectory, responses))
    else:
        amounts = tuple(float(amount) for amount in part(trajectory))
    if len(amounts) != len(trajectory.steps):
        raise RecordError(
            f"{_name_attempt(trajectory)}: reward {_name_kind(part)!r} gave {len(amounts)} numbers for "
            f"{len(trajectory.steps)} steps; give one per step"
        )
    for step, amount in zip(trajectory.steps, amounts, strict=True):
        _check_amount(trajectory, step, amount, f"reward {_name_kind(part)!r}")
    return amounts


def _check_amount(trajectory: Trajectory, step: Step, amount: float, what: str) -> None:
    if not abs(amount) <= LARGEST_REWARD:
        raise RecordError(
            f"{_name_attempt(trajectory)}, step {step.index}: {what} is {amount}; rewards are finite and at most "
            f"{LARGEST_REWARD:g}: mend what computes it (a missing reward is not a zero)"
        )


def _name_attempt(trajectory: Trajectory) -> str:
    return f"task {trajectory.task.id!r}, attempt {trajectory.attempt}"


def _name_kind(part: Reward) -> str:
    name: str | None = getattr(part, "score_name", None)
    return name if name is not None else kind_of(type(part)) if isinstance(part, Part) else type(part).__name__
