"""A LoRA adapter as a folder in peft's layout, which servers load beside the model."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from groupwise.models.folder import ADAPTER_CONFIG, ADAPTER_WEIGHTS, name_as_stored

if TYPE_CHECKING:
    import torch


@runtime_checkable
class AdapterEngine(Protocol):
    """What an engine has that can be handed LoRA adapters beside the model that it holds."""

    @property
    def adapter_settings(self) -> Mapping[str, Any] | None:
        """What `adapter_config.json` says of the run's adapter; None where the run's model has none."""

    def load_adapter(self, folder: Path, *, version: int) -> None:
        """Take over the adapter of a folder, before this returns; what comes after is sampled with it."""


def read_adapter_settings(model: object) -> dict[str, Any] | None:
    """What `adapter_config.json` says of a model's LoRA adapter; None where the model has none."""
    adapters: Any = getattr(model, "peft_config", None)
    if not adapters:
        return None
    [settings] = adapters.values()
    content: dict[str, Any] = json.loads(json.dumps(settings.to_dict(), default=_write_plainly))
    return {**content, "inference_mode": True}


def write_adapter_folder(folder: Path, settings: Mapping[str, Any], weights: Mapping[str, torch.Tensor]) -> None:
    """Write an adapter's settings, and its weights under the names that files have for them."""
    from safetensors.torch import save_file

    folder.mkdir(parents=True, exist_ok=True)
    (folder / ADAPTER_CONFIG).write_text(json.dumps(dict(settings), indent=2), encoding="utf-8")
    tensors = {name_as_stored(name): value.detach().cpu().contiguous() for name, value in weights.items()}
    save_file(tensors, folder / ADAPTER_WEIGHTS)


def _write_plainly(value: Any) -> Any:
    return sorted(value) if isinstance(value, set | frozenset) else str(value)
