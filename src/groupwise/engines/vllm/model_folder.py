"""A loaded model as a folder that vLLM reads: its whole weights, or those below its LoRA adapter."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from groupwise.models.quietly import save_model

if TYPE_CHECKING:
    from transformers import PreTrainedModel


def write_model_folder(model: PreTrainedModel, folder: Path) -> None:
    """Write a model's config and weights; of one with a LoRA adapter, the model below it, unmerged."""
    if not getattr(model, "peft_config", None):
        save_model(model, folder)
        return
    adapted: Any = model
    below: PreTrainedModel = adapted.get_base_model()
    weights = {
        name.replace(".base_layer.", "."): value for name, value in below.state_dict().items() if ".lora_" not in name
    }
    save_model(below, folder, state_dict=weights)
