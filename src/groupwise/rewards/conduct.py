"""Rewards for how an agent goes about a task: its steps, the form of its responses, actions that were refused."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from groupwise.core.parts.part import Part
from groupwise.core.records import Trajectory
from groupwise.rewards.reward import Amount


class StepReward(Part, slot="reward"):
    """The same amount for every step: negative, it asks for short attempts.

    r_t = each
    """

    each: Amount = -0.01
    """Paid for a step."""

    def __call__(self, trajectory: Trajectory) -> tuple[float, ...]:
        return (self.each,) * len(trajectory.steps)


class MalformedResponseReward(Part, slot="reward"):
    """A penalty for every response without the form that was asked for, whatever the environment made of it.

        r_t = -penalty where the response is malformed, else 0

    Source: 0.1 as in GiGPO's release (arXiv:2505.10978). Choices: it is part of the reward, so that discounted returns
    carry it back to earlier steps. Recipes of that family have an `invalid_penalty` of their own, taken from the step's
    own return after discounting: use the one or the other.
    """

    penalty: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.1
    """Taken from a malformed step."""

    def __call__(self, trajectory: Trajectory) -> tuple[float, ...]:
        return tuple(-self.penalty if step.well_formed is False else 0.0 for step in trajectory.steps)


class RefusedActionReward(Part, slot="reward"):
    """A penalty for every well-formed response whose action the environment refused.

        r_t = -penalty where the response is well formed and its action refused, else 0

    Ours. Choices: where a prompt does not list what is possible, guessing is part of the search, and this teaches not
    to search (docs/adr/0006-invalid-penalty.md). `refused_penalty` of the recipes stays on its step; this one is
    carried back to earlier steps by discounted returns: use the one or the other.
    """

    penalty: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.1
    """Taken from a refused step."""

    def __call__(self, trajectory: Trajectory) -> tuple[float, ...]:
        return tuple(
            -self.penalty if step.accepted is False and step.well_formed is not False else 0.0
            for step in trajectory.steps
        )


class FormatReward(Part, slot="reward"):
    """Pays for responses of the form that was asked for, whatever the environment made of the action.

        r_t = (kept if the response is well formed, else broken) / steps        `per="attempt"`
        r_t =  kept if the response is well formed, else broken                 `per="step"`
        r_last = kept if all responses are well formed, else broken             `per="whole"`

    Source: format rewards of the R1 kind (DeepSeek-R1, arXiv:2501.12948), which score one response; the last is
    ProRAG's (arXiv:2601.21912), with 1 and -1. Choices: over many steps the mean is paid, so that a longer attempt
    earns no more by it. What the form is, the run's action rule says.
    """

    kept: Amount = 0.1
    """Paid for a well-formed response."""
    broken: Amount = 0.0
    """Paid for any other."""
    per: Literal["attempt", "step", "whole"] = "attempt"
    """Whether an attempt is paid the mean over its steps, each step in full, or one amount for all of them."""

    def __call__(self, trajectory: Trajectory) -> tuple[float, ...]:
        if self.per == "whole" and trajectory.steps:
            paid = self.kept if all(step.well_formed for step in trajectory.steps) else self.broken
            return (*(0.0,) * (len(trajectory.steps) - 1), paid)
        share = len(trajectory.steps) if self.per == "attempt" else 1
        return tuple((self.kept if step.well_formed else self.broken) / share for step in trajectory.steps)
