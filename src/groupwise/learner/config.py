"""How weights are updated: the settings of learners, without torch, so that run files decode without it."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Annotated, Any, Literal, Protocol

from pydantic import Field, field_validator, model_validator

from groupwise.parts.part import Part, Slot
from groupwise.parts.slots import Loss

if TYPE_CHECKING:
    from groupwise.learner.protocol import Learner

# Schedules: how much of the learning rate each optimiser step uses.
#
# A schedule is a pure function of the number of steps made so far, so that a resumed run goes on exactly where it was.
# Steps are those of the optimiser: an update of the loop makes `passes x minibatches` of them, one by default.


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


Decay = Annotated[float, Field(ge=0, lt=1)]


class LearnerConfig(Part, slot="learner"):
    """In this process, by AdamW: one model on one device."""

    optimiser: Literal["adamw", "adamw_8bit"] = "adamw"
    """What steps: AdamW with float32 moments, or with moments of 8 bits (torchao), a quarter of their memory."""
    bfloat16_weights: Literal["refused", "stochastic_rounding", "float32_masters"] = "refused"
    """How weights that were loaded in bfloat16 train, where small steps would be rounded away. stochastic_rounding = up
    or down by chance, right on average (`adamw_8bit` only); float32_masters = the optimiser keeps them once more in
    float32. Weights in float32 train as they are."""

    learning_rate: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 1e-3
    """Largest step size of AdamW; the schedule says which share of it a step uses."""
    schedule: ScheduleSlot = Constant()
    """How the step size changes over the run."""
    weight_decay: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.0
    """Decoupled weight decay, of every weight that trains."""
    betas: tuple[Decay, Decay] = (0.9, 0.999)
    """Decay of AdamW's moments."""
    eps: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 1e-8
    """Added to the root of AdamW's second moment."""
    max_grad_norm: Annotated[float, Field(gt=0)] | Literal["off"] = 1.0
    """Gradients longer than this are shortened to it; "off" = none is."""
    apply_gradients: Literal["together", "as_they_come"] = "together"
    """When weights change: once all gradients are there, or each as soon as the backward pass has its gradient, so that
    all gradients are never in memory. The latter needs `max_grad_norm` off and one micro-batch an optimiser step."""
    passes: Annotated[int, Field(ge=1)] = 1
    """How often an update's samples are used; after the first optimiser step they are off-policy."""
    minibatches: Annotated[int, Field(ge=1)] = 1
    """Optimiser steps per pass; groups stay whole where there are enough of them, else trajectories."""
    token_budget: Annotated[int, Field(ge=1)] = 8192
    """Most distinct tokens in a micro-batch."""
    share_prefixes: bool = True
    """Whether equal beginnings of samples are computed once."""
    precision: Literal["float32", "bfloat16"] = "float32"
    """What layers compute in; weights that train and their gradients are as loaded, the loss is float32 either way."""
    checkpoint_layers: bool = False
    """Whether only what enters a layer is kept, and the rest computed again in the backward pass: less memory."""
    compile_layers: bool = False
    """Whether layers are compiled: faster on a GPU, after half a minute at the start."""

    @field_validator("max_grad_norm", mode="before")
    @classmethod
    def _is_length_or_off(cls, value: object) -> object:
        if value != "off" and (isinstance(value, bool) or not isinstance(value, int | float) or not value > 0):
            raise ValueError(f'found {value!r}; give a length above 0, or "off"')
        return value

    @model_validator(mode="after")
    def _can_round(self) -> LearnerConfig:
        if self.bfloat16_weights == "stochastic_rounding" and self.optimiser == "adamw":
            raise ValueError(
                "bfloat16_weights is 'stochastic_rounding', which the optimiser 'adamw' does not do; set optimiser = "
                "'adamw_8bit', or bfloat16_weights = 'float32_masters'"
            )
        return self

    def open(self, model: Any, loss: Loss, *, temperature: float) -> Learner:
        from groupwise.learner.local import LocalLearner  # it needs torch

        return LocalLearner(model, loss, self, temperature=temperature)


class ShardedLearnerConfig(LearnerConfig, slot="learner"):
    """Over several processes, started by torchrun: each holds a share of weights, gradients and moments (FSDP2).

    Rank 0 plays, compares and writes; the others only learn. Samples are dealt out by group, a rank each, and every
    total is counted over all of them, so that the number of ranks changes an update by rounding alone.
    """

    ranks: Annotated[int, Field(ge=1)] | None = None
    """Processes that the run must have; None = as many as were started."""
    gather: Literal["auto", "every_pass", "once_a_step"] = "auto"
    """When shares are put together: for each layer of each pass, which needs the least memory, or once an optimiser
    step, which waits less; auto = once a step where whole weights and gradients take a third of the memory at most and
    there are others to wait for."""
    timeout: Annotated[float, Field(gt=0, le=604_800)] = 600.0
    """Seconds that a rank waits for the others within a pass before it gives up; a week at most."""

    @model_validator(mode="after")
    def _is_plain(self) -> ShardedLearnerConfig:
        for name, only in (("optimiser", "adamw"), ("bfloat16_weights", "refused"), ("apply_gradients", "together")):
            if getattr(self, name) != only:
                raise ValueError(
                    f"{name} is {getattr(self, name)!r}, which a sharded learner does not know; set {only!r}, or take "
                    'the local learner (kind = "local")'
                )
        return self

    def open(self, model: Any, loss: Loss, *, temperature: float, device: Any = None) -> Learner:
        """The learner on a model, over all ranks that were started; None = shares lie where the model is."""
        from groupwise.learner.sharded import open_sharded_learner  # it needs torch

        return open_sharded_learner(model, loss, self, temperature=temperature, device=device)
