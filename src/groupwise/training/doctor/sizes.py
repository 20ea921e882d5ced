"""How large a run is, before it is run: tokens of an update, memory, disk. Estimates, made without loading weights."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from groupwise.envs.mixture import mean_max_steps
from groupwise.models.outline import ModelPlan, plan_model
from groupwise.models.pretrained import PretrainedModel
from groupwise.models.tiny import TinyModel
from groupwise.training.doctor.memory.run_memory import RunMemory, estimate_memory
from groupwise.training.learner.config import LearnerConfig
from groupwise.training.needed_memory import check_memory, count_moment_bytes, count_shares, find_local_learner
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


def estimate_sizes(config: RunConfig, *, available: float | None = None) -> Sizes:
    """Estimate what a run takes, without loading its weights.

    A checkpoint holds what trains and its moments: of a model with an adapter the adapter alone, else all weights.

    Args:
        config: The run.
        available: Bytes of memory; a run whose weights do not fit is refused. None = it need not fit here.
    """
    attempts = config.training.tasks * config.rollout.plan.attempts
    plan, tokenizer = plan_run_model(config)
    shares = count_shares(config)
    if available is not None and shares is not None:
        check_memory(config, plan, available=available, shares=shares)
    outline = plan.sketch()
    trained = sum(value.numel() for value in outline.parameters() if value.requires_grad)
    learner = find_local_learner(config) or LearnerConfig()
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


def plan_run_model(config: RunConfig) -> tuple[ModelPlan, Any]:
    """What the run's model is made of, and its tokenizer."""
    words = config.words()
    if isinstance(config.model, PretrainedModel | TinyModel):
        tokenizer, _ = config.model.open_tokenizer(words=words)
        plan = plan_model(config.model, words=words)
        assert plan is not None
        return plan, tokenizer
    model, tokenizer = config.model.open(words=words, seed=0)  # of others only the weights tell the shapes
    return ModelPlan(config=model.config), tokenizer


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
