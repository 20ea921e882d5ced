"""Weights handed over through a file, as an engine in another process needs them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from groupwise.core.errors import TrainingError
from groupwise.core.parts.part import Part
from groupwise.core.parts.path_settings import PathText
from groupwise.core.text.safe_text import quote_line
from groupwise.training.learner.weights import collect_weights
from groupwise.training.weight_transfer.transfer_folder import choose_folder, hold_folder

if TYPE_CHECKING:
    import torch

    from groupwise.engines.engine import Engine


@runtime_checkable
class LoadsFiles(Protocol):
    """What an engine has that reads files itself; for one that has it not, the file is read here."""

    def load_file(self, path: Path, *, version: int) -> None:
        """Take over the weights of a safetensors file, by name, before this returns."""


class ThroughFile(Part, slot="weight_transfer"):
    """Weights go through a safetensors file, which is gone once the engine has them.

    An engine with a method `load_file(path, version=...)` is told the path; for any other the file is read back here.
    """

    folder: PathText = ""
    """Where the file goes, such as a folder in memory or on a disk that the engine sees too; one run a folder. Empty =
    `weights` in the run's folder."""

    def open(self, folder: Path | None) -> FileTransfer:
        """The transfer through the folder that is named here, or else the run's own place."""
        return FileTransfer(choose_folder(self.folder, folder))


class FileTransfer:
    """Writes a file for each hand-over."""

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder

    def hand_over(
        self,
        weights: Mapping[str, torch.Tensor] | Iterable[tuple[str, torch.Tensor]],
        engine: Engine,
        *,
        version: int,
    ) -> None:
        """Write the weights, let the engine read them, remove the file."""
        with hold_folder(self._folder) as place:
            _send(place, weights, engine, version)


def _send(
    folder: Path,
    weights: Mapping[str, torch.Tensor] | Iterable[tuple[str, torch.Tensor]],
    engine: Engine,
    version: int,
) -> None:
    from safetensors.torch import load_file

    path = folder / f"{version:04d}.safetensors"
    try:
        _write(path, weights)
        if isinstance(engine, LoadsFiles):
            engine.load_file(path, version=version)
        else:
            engine.load(load_file(path), version=version)
    finally:
        with suppress(OSError):
            path.unlink(missing_ok=True)


def _write(path: Path, weights: Mapping[str, torch.Tensor] | Iterable[tuple[str, torch.Tensor]]) -> None:
    """Write a file whole or not at all."""
    from safetensors import SafetensorError
    from safetensors.torch import save_file

    draft = path.with_name(f".{path.name}.tmp")
    tensors = {name: value.contiguous() for name, value in collect_weights(weights).items()}
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        save_file(tensors, draft)
        draft.replace(path)
    except (OSError, SafetensorError) as error:  # the latter is what safetensors makes of a full disk
        _remove(draft)
        reason = getattr(error, "strerror", None) or error
        raise TrainingError(
            f"the weights could not be written to {path} ({reason}); free some space, or name another place in "
            "training.weight_transfer.folder, then go on with --resume"
        ) from None
    except RuntimeError as error:  # what safetensors makes of weights that share memory
        _remove(draft)
        raise TrainingError(
            f"the weights could not be written to {path} ({quote_line(str(error), limit=300)}); let the learner give "
            "each weight under one name and with memory of its own, or use the weight_transfer in_memory"
        ) from None


def _remove(draft: Path) -> None:
    with suppress(OSError):
        draft.unlink(missing_ok=True)
