"""How large a run is, before it is run: tokens of an update, memory, disk. Estimates, made without loading weights."""

from __future__ import annotations

from dataclasses import dataclass

from groupwise.envs.mixture import mean_max_steps
from groupwise.training.doctor.memory.outline import plan_model
from groupwise.training.doctor.memory.run_memory import (
    RunMemory,
    count_moment_bytes,
    estimate_memory,
    find_local_learner,
)
from groupwise.training.run_config import RunConfig


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """What a run takes."""

    attempts: int
    """Attempts of an update."""
    tokens: int
    """Most tokens sampled in an update: every attempt as long as the limits allow."""
    parameters: int
    """Weights of the model, without those of an adapter."""
    trained: int
    """Weights that train."""
    memory: RunMemory
    """Bytes that it holds, by part and stage."""
    checkpoint: float
    """Bytes of one checkpoint."""
    checkpoints: int
    """Checkpoints that are there at a time."""


def estimate_sizes(config: RunConfig) -> Sizes:
    """Estimate what a run takes, without loading its weights.

    A checkpoint holds what trains and its moments: of a model with an adapter the adapter alone, else all weights.
    """
    attempts = config.training.tasks * config.rollout.plan.attempts
    plan, tokenizer = plan_model(config)
    outline = plan.draw()
    trained = sum(value.numel() for value in outline.parameters() if value.requires_grad)
    learner = find_local_learner(config)
    stored = [
        (value.numel(), value.element_size())
        for value in outline.parameters()
        if value.requires_grad or plan.lora is None
    ]
    return Sizes(
        attempts=attempts,
        tokens=round(attempts * mean_max_steps(config.env)) * config.rollout.max_tokens,
        parameters=sum(value.numel() for name, value in outline.named_parameters() if ".lora_" not in name),
        trained=trained,
        memory=estimate_memory(config, plan, tokenizer),
        checkpoint=sum(num * (width + count_moment_bytes(learner, width)) for num, width in stored),
        checkpoints=_count_checkpoints(config),
    )


def _count_checkpoints(config: RunConfig) -> int:
    """How many checkpoints a run has at the most, besides the one that it is about to remove."""
    updates, keep, evaluation = config.training.updates, config.checkpoints.keep, config.evaluation
    written = {*range(0, updates, config.training.checkpoint_every), updates}
    if keep == "all":
        return len(written)
    if evaluation.tasks and evaluation.every:  # the best is also saved where no checkpoint was due
        written |= set(range(0, updates, evaluation.every))
    always = 3 if keep == "best" else keep + 2  # the first, which a loss may compare with, and the best
    return min(len(written), always)
