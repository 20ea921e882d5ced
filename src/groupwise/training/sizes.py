"""How large a run is, before it is run: tokens of an update, memory, disk. Estimates, made without loading weights."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from transformers import AutoConfig, AutoModelForCausalLM

from groupwise.core.errors import ConfigError
from groupwise.engines.pretrained import PretrainedModel
from groupwise.losses.columns import REFERENCE_LOGP
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
    """Bytes of the learner, the engine, the reference, gradients, optimiser and a micro-batch's activations, about."""
    checkpoint: float
    """Bytes of one checkpoint."""
    checkpoints: int
    """Checkpoints that the run writes."""


def sizes_of(config: RunConfig) -> Sizes:
    """Work out what a run takes."""
    attempts = config.training.tasks * config.rollout.plan.attempts
    parameters, trained, hidden, layers, width = _model(config)
    needs_copy = config.algorithm.loss is not None and REFERENCE_LOGP in config.algorithm.loss.needs
    copies = 2 + (needs_copy and trained == parameters)
    moments = trained * 4 * 2
    activations = config.training.learner.token_budget * hidden * layers * NUMBERS_PER_UNIT * width
    every = config.training.checkpoint_every
    return Sizes(
        attempts=attempts,
        tokens=attempts * config.env.max_steps * config.rollout.max_tokens,
        parameters=parameters,
        trained=trained,
        memory=parameters * width * copies + trained * 4 + moments + activations,
        checkpoint=parameters * width + moments if trained == parameters else trained * 4 + moments,
        checkpoints=1 + -(-config.training.updates // every),
    )


def _model(config: RunConfig) -> tuple[int, int, int, int, int]:
    """Weights, those that train, hidden size, layers, and bytes of a weight."""
    part = config.model
    if isinstance(part, PretrainedModel):
        return _pretrained(part)
    model, _ = part.open(words=config.words(), seed=0)
    found = sum(value.numel() for value in model.parameters())
    return found, found, model.config.hidden_size, model.config.num_hidden_layers, 4


def _pretrained(part: PretrainedModel) -> tuple[int, int, int, int, int]:
    try:
        config = AutoConfig.from_pretrained(part.path)
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
    return parameters, trained, config.hidden_size, config.num_hidden_layers, width
