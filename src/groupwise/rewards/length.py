"""Rewards by the length of responses, in sampled tokens; the token that ends a response counts."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, model_validator

from groupwise.core.parts.part import Part
from groupwise.core.records import Trajectory, score_of
from groupwise.rewards.reward import Amount


class OverlongReward(Part, slot="reward"):
    """A soft penalty for responses that come near the limit of length, by L sampled tokens.

        r = 0                                       if L <= limit - buffer
        r = weight * (limit - buffer - L) / buffer  if limit - buffer < L <= limit
        r = -weight                                 if L > limit

    Source: DAPO (Yu et al. 2025, arXiv:2503.14476, eq. 13), with limit 20480 and buffer 4096. Choices: each step's
    response is measured by itself. A buffer of 0 leaves the hard limit. A response cut off at a limit of as many tokens
    has length L = limit and is paid -weight. Whether a task is worth training on should not go by this reward: the
    column `accuracy` keeps what the judges paid, and the filter `zero_spread` reads that.
    """

    limit: Annotated[int, Field(ge=1)] = 20480
    """Tokens from which on the whole penalty is due."""
    buffer: Annotated[int, Field(ge=0)] = 4096
    """Tokens before the limit over which the penalty grows."""
    weight: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 1.0
    """The whole penalty."""

    @model_validator(mode="after")
    def _fits(self) -> OverlongReward:
        if self.buffer > self.limit:
            raise ValueError(f"buffer is {self.buffer} but at most {self.limit}, the limit that it leads up to")
        return self

    def __call__(self, trajectory: Trajectory) -> tuple[float, ...]:
        return tuple(self.weight * self._share_of_penalty(len(step.response_ids)) for step in trajectory.steps)

    def _share_of_penalty(self, length: int) -> float:
        free = self.limit - self.buffer
        if length <= free:
            return 0.0
        return (free - length) / self.buffer if length <= self.limit else -1.0


class LengthReward(Part, slot="reward"):
    """The same amount for every sampled token beyond a free number: negative, it asks for short responses.

        r = each * max(L - free, 0)

    Source: ours; the linear form of the length penalties around.
    """

    each: Amount = -0.001
    """Paid for a token."""
    free: Annotated[int, Field(ge=0)] = 0
    """Tokens of a response that are not counted."""

    def __call__(self, trajectory: Trajectory) -> tuple[float, ...]:
        return tuple(self.each * max(len(step.response_ids) - self.free, 0) for step in trajectory.steps)


class BrevityReward(Part, slot="reward"):
    """More for a right answer the shorter it is, by L sampled tokens of the whole attempt; nothing for a wrong one.

        r_last = weight * max(0, 1 - L / limit)   if solved, else 0

    Source: R^3 (2026, arXiv:2601.19620), with limit 32768. Choice: it is added to the outcome, so that a right answer
    earns c * (1 + r). Which groups are all right or all wrong goes by the outcome alone.
    """

    limit: Annotated[int, Field(ge=1)] = 32768
    """Tokens from which on nothing is added."""
    weight: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 1.0
    """What an answer of no length would be paid."""
    solved_at: float = 0.5
    """Score from which on an answer counts as right."""

    def __call__(self, trajectory: Trajectory) -> tuple[float, ...]:
        if not trajectory.steps:
            return ()
        length = sum(len(step.response_ids) for step in trajectory.steps)
        is_right = score_of(trajectory) >= self.solved_at
        paid = self.weight * max(0.0, 1 - length / self.limit) if is_right else 0.0
        return (0.0,) * (len(trajectory.steps) - 1) + (paid,)
