"""Whether a model can be trained by a learner with its settings."""

from __future__ import annotations

import torch
from transformers import PreTrainedModel

from groupwise.learner.config import LearnerConfig
from groupwise.learner.eight_bit import check_torchao
from groupwise.system.errors import ConfigError


def check_trainable(model: PreTrainedModel, config: LearnerConfig) -> None:
    """Refuse a model with no weight to train, with one that is too narrow for it, or that drops activations."""
    trained = {name: value for name, value in model.named_parameters() if value.requires_grad}
    if not trained:
        raise ConfigError("the model has no weight that trains; load it without freezing, or with a LoRA adapter")
    allowed = {torch.float64, torch.float32}
    allowed |= {torch.bfloat16} if config.bfloat16_weights != "refused" else set()
    narrow = next((name for name, value in trained.items() if value.dtype not in allowed), None)
    if narrow is not None:
        kind = str(trained[narrow].dtype).removeprefix("torch.")
        instead = ", or say how it shall (training.learner.bfloat16_weights)" if kind == "bfloat16" else ""
        raise ConfigError(
            f"{narrow} would train in {kind}, where small steps are rounded away; load the model in float32, or train "
            f"a LoRA adapter on it (model.lora_rank), whose weights are float32{instead}"
        )
    if any(getattr(module, "gradient_checkpointing", False) for module in model.modules()):
        raise ConfigError(
            "gradient checkpointing was turned on for the whole model, which works in training mode only, in which "
            "dropout is on; turn it off and set training.learner.checkpoint_layers instead"
        )


def check_packages(settings: object) -> None:
    """Refuse settings of a learner for which a package is not installed, before a model loads."""
    if isinstance(settings, LearnerConfig) and settings.optimiser == "adamw_8bit":
        check_torchao()
