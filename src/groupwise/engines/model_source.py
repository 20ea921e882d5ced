"""The input of an engine: the run's loaded model, its tokenizer and its origin."""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from groupwise.models.folder import ADAPTER_CONFIG, ADAPTER_WEIGHTS, name_as_stored
from groupwise.system.json_text import to_json

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel


@dataclass(frozen=True, kw_only=True)
class ModelSource:
    """The model that an engine samples from.

    Worked example: an in-process engine uses `copy_model()`, or `share_model()` to share the learner's weights. The
    client of a server copies nothing. It compares the vocabulary and `path` with those of the server.
    """

    model: PreTrainedModel
    """The learner's own model; read-only."""
    tokenizer: Any
    path: str | None
    """The folder or hub name it was loaded from; None = it was made from scratch."""
    folder: Path | None = None
    """The run's folder for files of its engine: server logs, a model for servers. It need not exist. None = the run is
    only read, so nothing may be written into its folder."""

    device: torch.device | None = None
    """The learner's device; a model that will be sharded is not there yet. None = the model's current device."""

    def share_model(self) -> PreTrainedModel:
        """A second model over the same parameter tensors, with modules, buffers and settings of its own.

        It always has the learner's current weights, and must not change them.
        """
        same: dict[int, Any] = {id(value): value for value in self.model.parameters()}
        return copy.deepcopy(self.model, same)

    def copy_model(self) -> PreTrainedModel:
        """A copy with weights of its own on the learner's device, for real weight syncs."""
        copied: Any = copy.deepcopy(self.model)
        return copied if self.device is None else copied.to(self.device)  # type: ignore[no-any-return]


# A LoRA adapter as a folder in peft's layout, which servers load in addition to the model.


@runtime_checkable
class AdapterEngine(Protocol):
    """An engine that can load LoRA adapters in addition to its model."""

    @property
    def adapter_settings(self) -> Mapping[str, Any] | None:
        """The `adapter_config.json` of the run's adapter; None if the run's model has none."""

    def load_adapter(self, folder: Path, *, version: int) -> None:
        """Load the adapter of a folder before this returns; later responses are sampled with it."""


def read_adapter_settings(model: object) -> dict[str, Any] | None:
    """The `adapter_config.json` of a model's LoRA adapter; None if the model has none."""
    adapters: Any = getattr(model, "peft_config", None)
    if not adapters:
        return None
    [settings] = adapters.values()

    text = json.dumps(settings.to_dict(), default=lambda value: sorted(value) if isinstance(value, set) else str(value))
    return {**json.loads(text), "inference_mode": True}


def write_adapter_folder(folder: Path, settings: Mapping[str, Any], weights: Mapping[str, torch.Tensor]) -> None:
    """Write an adapter's settings, and its weights under their names in files."""
    from safetensors.torch import save_file

    folder.mkdir(parents=True, exist_ok=True)
    (folder / ADAPTER_CONFIG).write_text(to_json(dict(settings)), encoding="utf-8")
    tensors = {name_as_stored(name): value.detach().cpu().contiguous() for name, value in weights.items()}
    save_file(tensors, folder / ADAPTER_WEIGHTS)
