"""Settings of the sharded learner, without torch, so that run files decode without it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field, model_validator

from groupwise.core.parts.slots import Loss
from groupwise.training.learner.config import LearnerConfig

if TYPE_CHECKING:
    from groupwise.training.learner.protocol import Learner


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
        from groupwise.training.learner.sharded.open_sharded import open_sharded_learner  # it needs torch

        return open_sharded_learner(model, loss, self, temperature=temperature, device=device)
