"""How weights are updated: the local learner's settings, without torch, so that run files decode without it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field

from groupwise.core.parts.part import Part
from groupwise.core.parts.slots import Loss
from groupwise.training.learner.schedules import Constant, ScheduleSlot

if TYPE_CHECKING:
    from groupwise.training.learner.protocol import Learner

Decay = Annotated[float, Field(ge=0, lt=1)]


class LearnerConfig(Part, slot="learner"):
    """In this process, by AdamW: one model on one device."""

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
    max_grad_norm: Annotated[float, Field(gt=0)] = 1.0
    """Gradients longer than this are shortened to it."""
    passes: Annotated[int, Field(ge=1)] = 1
    """How often an update's samples are used; after the first optimiser step they are off-policy."""
    minibatches: Annotated[int, Field(ge=1)] = 1
    """Optimiser steps per pass; groups stay whole where there are enough of them, else trajectories."""
    token_budget: Annotated[int, Field(ge=1)] = 8192
    """Most distinct tokens in a micro-batch."""
    share_prefixes: bool = True
    """Whether equal beginnings of samples are computed once."""
    precision: Literal["float32", "bfloat16"] = "float32"
    """What layers compute in; weights that train, their gradients and the loss are float32 either way."""
    checkpoint_layers: bool = False
    """Whether only what enters a layer is kept, and the rest computed again in the backward pass: less memory."""
    compile_layers: bool = False
    """Whether layers are compiled: faster on a GPU, after half a minute at the start."""

    def open(self, model: Any, loss: Loss, *, temperature: float) -> Learner:
        """The learner on a model."""
        from groupwise.training.learner.local import LocalLearner  # it needs torch

        return LocalLearner(model, loss, self, temperature=temperature)
