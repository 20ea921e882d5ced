"""LoRA adapters handed over through folders: little goes over, and the servers keep the model that they hold."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from groupwise.core.errors import ConfigError, TrainingError
from groupwise.core.parts.part import Part
from groupwise.core.parts.path_settings import PathText
from groupwise.core.text.safe_text import quote_line
from groupwise.engines.adapter_folder import AdapterEngine, write_adapter_folder
from groupwise.training.learner.weights import collect_weights
from groupwise.training.weight_transfer.transfer_folder import choose_folder, hold_folder

if TYPE_CHECKING:
    import torch

    from groupwise.engines.engine import Engine


class Adapter(Part, slot="weight_transfer"):
    """A LoRA adapter goes through a folder named by its version, which is gone once the engine has it.

    The model needs a LoRA adapter (`model.lora_rank`), and the engine servers that were started for adapters.
    """

    folder: PathText = ""
    """Where the folders go, such as a place in memory or on a disk that the servers see too; one run a folder. Empty =
    `weights` in the run's folder."""

    def open(self, folder: Path | None) -> AdapterTransfer:
        """The transfer through the folder that is named here, or else the run's own place."""
        return AdapterTransfer(choose_folder(self.folder, folder))


class AdapterTransfer:
    """Writes an adapter's folder for each hand-over."""

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder

    def hand_over(
        self,
        weights: Mapping[str, torch.Tensor] | Iterable[tuple[str, torch.Tensor]],
        engine: Engine,
        *,
        version: int,
    ) -> None:
        """Write the adapter, let the engine read it, remove the folder."""
        table = collect_weights(weights)
        if not isinstance(engine, AdapterEngine):
            raise ConfigError(
                f"training.weight_transfer: the engine {type(engine).__name__} takes no adapters; use in_memory, or an "
                "engine of vLLM's"
            )
        if engine.adapter_settings is None or not all(".lora_" in name for name in table):
            raise ConfigError(
                "training.weight_transfer: the model has no LoRA adapter that alone trains, so that there is none to "
                "hand over; set model.lora_rank, or use through_file"
            )
        with hold_folder(self._folder) as place:
            _send(place, table, engine, version)


def _send(place: Path, weights: Mapping[str, torch.Tensor], engine: AdapterEngine, version: int) -> None:
    folder = place / f"{version:04d}"
    try:
        _write(folder, weights, engine)
        engine.load_adapter(folder, version=version)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _write(folder: Path, weights: Mapping[str, torch.Tensor], engine: AdapterEngine) -> None:
    from safetensors import SafetensorError

    try:
        write_adapter_folder(folder, engine.adapter_settings or {}, weights)
    except (OSError, SafetensorError) as error:  # the latter is what safetensors makes of a full disk
        reason = quote_line(str(getattr(error, "strerror", None) or error), limit=300)
        raise TrainingError(
            f"the adapter could not be written to {folder} ({reason}); free some space, or name another place in "
            "training.weight_transfer.folder, then go on with --resume"
        ) from None
