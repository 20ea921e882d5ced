"""Schedules: how much of the learning rate each optimiser step uses.

A schedule is a pure function of the number of steps made so far, so that a resumed run goes on exactly where it was.
Steps are those of the optimiser: an update of the loop makes `passes x minibatches` of them, one by default.
"""

from __future__ import annotations

import math
from typing import Annotated, Protocol

from pydantic import Field, model_validator

from groupwise.parts.part import Part, Slot


class Schedule(Protocol):
    """Says which share of the learning rate an optimiser step uses."""

    def __call__(self, step: int) -> float:
        """The share for the step after `step` others: between 0 and 1, 0 steps before the first."""


Warmup = Annotated[int, Field(ge=0)]


class Constant(Part, slot="schedule"):
    """The whole learning rate, after a linear warm-up.

        share(n) = (n + 1) / warmup_steps before the warm-up's end, then 1

    Choice: the first step is not lost: where transformers begins with a share of 0, this begins with
    1 / warmup_steps.
    """

    warmup_steps: Warmup = 0
    """Optimiser steps over which the share grows to 1."""

    def __call__(self, step: int) -> float:
        return _warmth(step, self.warmup_steps)


class Linear(Part, slot="schedule"):
    """A straight line from the whole learning rate down to a floor.

    share(n) = floor + (1 - floor) * (steps - n) / (steps - warmup_steps)      after the warm-up
    """

    steps: Annotated[int, Field(ge=1)]
    """Optimiser steps until the floor is reached, warm-up included; fixed, so that a run made longer keeps its past."""
    warmup_steps: Warmup = 0
    """Optimiser steps over which the share first grows to 1."""
    floor: Annotated[float, Field(ge=0, le=1)] = 0.0
    """Share that is left at the end, and from then on."""

    @model_validator(mode="after")
    def _falls(self) -> Linear:
        if self.warmup_steps >= self.steps:
            raise ValueError(
                f"warmup_steps is {self.warmup_steps}, but the schedule has {self.steps} steps; leave some for the way "
                "down"
            )
        return self

    def __call__(self, step: int) -> float:
        progress = min(max((step - self.warmup_steps) / (self.steps - self.warmup_steps), 0.0), 1.0)
        return _warmth(step, self.warmup_steps) * (self.floor + (1 - self.floor) * self._left(progress))

    def _left(self, progress: float) -> float:
        """What is left of the way down, from 1 at the warm-up's end to 0 at the last update."""
        return 1 - progress


class Cosine(Linear, slot="schedule"):
    """Half a cosine from the whole learning rate down to a floor: slow at both ends.

        share(n) = floor + (1 - floor) * (1 + cos(pi * p)) / 2,   p = (n - warmup_steps) / (steps - warmup_steps)

    Source: Loshchilov and Hutter 2017 (arXiv:1608.03983), without restarts.
    """

    def _left(self, progress: float) -> float:
        return (1 + math.cos(math.pi * progress)) / 2


ScheduleSlot = Annotated[Schedule, Slot("schedule")]


def _warmth(step: int, warmup: int) -> float:
    return min(1.0, (step + 1) / warmup) if warmup else 1.0
