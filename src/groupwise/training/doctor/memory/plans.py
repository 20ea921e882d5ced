"""The model that a run file names, as a plan of its modules, and its tokenizer; no weights are read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig

from groupwise.core.errors import ConfigError
from groupwise.core.parts.trust import WITHOUT_TRUST, may_run
from groupwise.models import folder as folders
from groupwise.models.pretrained import PretrainedModel
from groupwise.training.doctor.memory.outline import ModelPlan
from groupwise.training.run_config import RunConfig


def plan_model(config: RunConfig) -> tuple[ModelPlan, Any]:
    """What the run's model is made of, and its tokenizer."""
    part = config.model
    if isinstance(part, PretrainedModel):
        return _plan_pretrained(part)
    model, tokenizer = part.open(words=config.words(), seed=0)
    return ModelPlan(config=model.config), tokenizer


def _plan_pretrained(part: PretrainedModel) -> tuple[ModelPlan, Any]:
    if not may_run() and not Path(part.path).expanduser().is_dir():
        raise ConfigError(f"model.path: {part.path!r} is a name that the hub would be asked for, {WITHOUT_TRUST}")
    adapter = folders.find_adapter(part.path)
    base = part.path if adapter is None else adapter.base
    try:
        config = AutoConfig.from_pretrained(base, trust_remote_code=False)
    except (OSError, ValueError) as error:
        reason = str(error).splitlines()[0]
        raise ConfigError(f"model.path: cannot read {base!r} ({reason}); give a local folder or a hub name") from None
    lora = None
    if adapter is not None or part.lora_rank:
        from peft import LoraConfig

        lora = LoraConfig(**adapter.settings) if adapter is not None else part.make_lora_settings(base)
    return ModelPlan(config=config, dtype=getattr(torch, part.dtype), lora=lora), folders.load_tokenizer(part.path)
