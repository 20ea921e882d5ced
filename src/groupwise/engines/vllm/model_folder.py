"""A loaded model as a folder that vLLM reads: its whole weights, or those below its LoRA adapter."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from transformers import PreTrainedModel

ADAPTER_CONFIG = "adapter_config.json"
ADAPTER_WEIGHTS = "adapter_model.safetensors"


def write_model_folder(model: PreTrainedModel, folder: Path) -> None:
    """Write a model's config and weights; of one with a LoRA adapter, the model below it, unmerged."""
    adapted = _find_adapted(model)
    if adapted is None:
        model.save_pretrained(folder)
        return
    weights = {
        name.replace(".base_layer.", "."): value for name, value in adapted.state_dict().items() if ".lora_" not in name
    }
    adapted.save_pretrained(folder, state_dict=weights)


def read_adapter_settings(model: PreTrainedModel) -> dict[str, Any] | None:
    """What `adapter_config.json` says of a model's LoRA adapter; None where the model has none."""
    adapters = getattr(model, "peft_config", None)
    if not adapters:
        return None
    [settings] = adapters.values()
    content = settings.to_dict()
    content["inference_mode"] = True
    return {name: sorted(value) if isinstance(value, set) else value for name, value in content.items()}


def _find_adapted(model: PreTrainedModel) -> PreTrainedModel | None:
    """The model below an adapter of peft's."""
    base: Any = getattr(model, "get_base_model", None)
    return base() if base is not None and getattr(model, "peft_config", None) else None
