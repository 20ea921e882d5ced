"""How weights are updated: the learner's settings, without torch, so that run files decode without it."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from groupwise.core.parts import Part


class LearnerConfig(Part):
    """How weights are updated."""

    learning_rate: Annotated[float, Field(gt=0)] = 1e-3
    """Step size of AdamW after the warm-up."""
    warmup_updates: Annotated[int, Field(ge=0)] = 0
    """Updates over which the step size grows from 0."""
    weight_decay: Annotated[float, Field(ge=0)] = 0.0
    """Decoupled weight decay."""
    betas: tuple[float, float] = (0.9, 0.999)
    """Decay of AdamW's moments."""
    max_grad_norm: Annotated[float, Field(gt=0)] = 1.0
    """Gradients longer than this are shortened to it."""
    passes: Annotated[int, Field(ge=1)] = 1
    """How often an update's samples are used; after the first optimiser step they are off-policy."""
    minibatches: Annotated[int, Field(ge=1)] = 1
    """Optimiser steps per pass; trajectories stay whole."""
    token_budget: Annotated[int, Field(ge=1)] = 8192
    """Most distinct tokens in a micro-batch."""
    share_prefixes: bool = True
    """Whether equal beginnings of samples are computed once."""
