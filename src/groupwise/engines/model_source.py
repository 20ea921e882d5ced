"""What an engine is opened with: the run's model, loaded, and where it came from."""

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
    """The model that an engine shall speak for.

    Worked example: an engine of this process takes `copy_model()`, or `share_model()` where it shares the learner's
    weights; a client of a server reads the vocabulary off
    `tokenizer` and `path` to see whether the server holds the same model, and copies nothing.
    """

    model: PreTrainedModel
    """The learner's own model; to be looked at, never changed."""
    tokenizer: Any
    """Its tokenizer."""
    path: str | None
    """The folder or hub name it was loaded from; None = it was made from scratch."""
    folder: Path | None = None
    """A place of the run's own for what its engine writes, which need not exist: logs of servers, a model for them to
    load. None = the run is only read, and nothing may be written into its folder."""

    device: torch.device | None = None
    """What the model computes on; one that will be divided is not there yet. None = where it is."""

    def share_model(self) -> PreTrainedModel:
        """The model once more over the very same weights: modules, buffers and settings of its own, no weight twice.

        Whoever gets it reads the learner's weights as they are at any moment, and must not change them.
        """
        same: dict[int, Any] = {id(value): value for value in self.model.parameters()}
        return copy.deepcopy(self.model, same)

    def copy_model(self) -> PreTrainedModel:
        """The model once more, with weights of its own on the learner's device: a hand-over to it is a real one."""
        copied: Any = copy.deepcopy(self.model)
        return copied if self.device is None else copied.to(self.device)  # type: ignore[no-any-return]


# A LoRA adapter as a folder in peft's layout, which servers load beside the model.


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
    (folder / ADAPTER_CONFIG).write_text(to_json(dict(settings)), encoding="utf-8")
    tensors = {name_as_stored(name): value.detach().cpu().contiguous() for name, value in weights.items()}
    save_file(tensors, folder / ADAPTER_WEIGHTS)


def _write_plainly(value: Any) -> Any:
    return sorted(value) if isinstance(value, set | frozenset) else str(value)
