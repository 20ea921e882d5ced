"""How large a run is, before it is run: tokens of an update, memory, disk. Estimates, made without loading weights."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM

from groupwise.core.errors import ConfigError
from groupwise.core.parts.part import Part
from groupwise.core.parts.trust import WITHOUT_TRUST, may_run
from groupwise.losses.token_columns import REFERENCE_LOGP
from groupwise.models.pretrained import PretrainedModel
from groupwise.training.doctor import hardware
from groupwise.training.engine.config import LocalEngine
from groupwise.training.learner.config import LearnerConfig
from groupwise.training.learner.sharded.config import ShardedLearnerConfig
from groupwise.training.run_config import RunConfig

NUMBERS_PER_UNIT = 30
"""Numbers kept for the backward pass for each token, layer and hidden unit, as counted in small Llamas."""


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """What a run takes."""

    attempts: int
    """Attempts of an update."""
    tokens: int
    """Most tokens sampled in an update: every attempt as long as the limits allow."""
    parameters: int
    """Weights of the model."""
    trained: int
    """Weights that train."""
    memory: float
    """Bytes of the learner, the engine with keys and values, the reference, gradients, optimiser and a micro-batch's
    activations, about."""
    engine: float
    """Those of the engine: weights of its own in its precision, and what keys and values may grow to in lanes; 0 for
    one from elsewhere, which may compute on another machine."""
    checkpoint: float
    """Bytes of one checkpoint."""
    checkpoints: int
    """Checkpoints that are there at a time."""


@dataclass(frozen=True, kw_only=True)
class _ModelSize:
    """What estimates need to know of a model."""

    config: Any
    parameters: int
    trained: int
    width: int
    """Bytes of a weight."""


def estimate_sizes(config: RunConfig) -> Sizes:
    """Estimate what a run takes, without loading its weights."""
    attempts = config.training.tasks * config.rollout.plan.attempts
    model = _describe_model(config)
    parameters, trained, width = model.parameters, model.trained, model.width
    loss = config.algorithm.loss
    needs_copy = config.algorithm.measures_reference or (loss is not None and REFERENCE_LOGP in loss.needs)
    copies = 1 + (needs_copy and trained == parameters)
    moments = trained * 4 * 2
    units = model.config.hidden_size * model.config.num_hidden_layers
    activations = _find_token_budget(config) * units * NUMBERS_PER_UNIT * width
    engine = _estimate_engine(config, model)
    return Sizes(
        attempts=attempts,
        tokens=attempts * config.env.max_steps * config.rollout.max_tokens,
        parameters=parameters,
        trained=trained,
        memory=(parameters * width * copies + trained * 4 + moments) / _count_shares(config) + engine + activations,
        engine=engine,
        checkpoint=parameters * width + moments if trained == parameters else trained * 4 + moments,
        checkpoints=_count_checkpoints(config),
    )


def _count_checkpoints(config: RunConfig) -> int:
    """How many checkpoints a run has at the most, besides the one that it is about to remove."""
    every, keep = config.training.checkpoint_every, config.checkpoints.keep
    written = 1 + -(-config.training.updates // every)
    if keep == "all":
        return written
    always = 3 if keep == "best" else keep + 2  # the first, which a loss may compare with, and the best
    return min(written, always)


def _count_shares(config: RunConfig) -> int:
    """Over how many processes weights, gradients and moments are divided; 1 where the run file does not say."""
    part = config.training.learner
    return (part.ranks or 1) if isinstance(part, ShardedLearnerConfig) else 1


def _estimate_engine(config: RunConfig, model: _ModelSize) -> float:
    """The engine's weights, and what keys and values may take: its share of the GPU, or all that they can be."""
    local = config.engine
    if not isinstance(local, LocalEngine):
        return 0.0
    width = 2 if local.precision == "bfloat16" else model.width
    weights = model.parameters * width
    device = _find_gpu_memory(config.device)
    if device is None or local.decoding == "eager":
        return weights
    of = model.config
    heads = getattr(of, "num_key_value_heads", None) or of.num_attention_heads
    head = getattr(of, "head_dim", None) or of.hidden_size // of.num_attention_heads
    response: int = of.max_position_embeddings * of.num_hidden_layers * heads * head * 2 * width
    return weights + min(local.memory * device, local.rows * response)


def _find_token_budget(config: RunConfig) -> int:
    """Most tokens of a micro-batch: of the local learner, which one from elsewhere may have within it."""
    part = config.training.learner
    assert isinstance(part, Part), "the slot is filled by parts"
    local = (inner for inner in part.parts() if isinstance(inner, LearnerConfig))
    return next(local, LearnerConfig()).token_budget


def _find_gpu_memory(device: str) -> float | None:
    """Bytes of the GPU that a run computes on; None = on none that is here."""
    name, _, number = device.partition(":")
    gpus = hardware.list_gpus()[int(number) if number.isdigit() else 0 :] if name in ("auto", "cuda") else []
    return gpus[0].memory if gpus else None


def _describe_model(config: RunConfig) -> _ModelSize:
    part = config.model
    if isinstance(part, PretrainedModel):
        return _describe_pretrained(part)
    model, _ = part.open(words=config.words(), seed=0)
    parameters = sum(value.numel() for value in model.parameters())
    return _ModelSize(config=model.config.get_text_config(), parameters=parameters, trained=parameters, width=4)


def _describe_pretrained(part: PretrainedModel) -> _ModelSize:
    if not may_run() and not Path(part.path).expanduser().is_dir():
        raise ConfigError(f"model.path: {part.path!r} is a name that the hub would be asked for, {WITHOUT_TRUST}")
    try:
        config = AutoConfig.from_pretrained(part.path, trust_remote_code=False)
        with torch.device("meta"):
            model = AutoModelForCausalLM.from_config(config)
    except (OSError, ValueError) as error:
        reason = str(error).splitlines()[0]
        raise ConfigError(
            f"model.path: cannot read {part.path!r} ({reason}); give a local folder or a hub name"
        ) from None
    parameters = sum(value.numel() for value in model.parameters())
    trained = parameters
    if part.lora_rank:
        head = model.get_output_embeddings()  # the adapter leaves it alone
        linear = [module for module in model.modules() if isinstance(module, torch.nn.Linear) and module is not head]
        trained = sum(part.lora_rank * (module.in_features + module.out_features) for module in linear)
    width = int(getattr(torch, part.dtype).itemsize)
    return _ModelSize(config=config.get_text_config(), parameters=parameters, trained=trained, width=width)
