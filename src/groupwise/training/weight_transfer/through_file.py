"""Weights handed over through a file, as an engine in another process needs them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from groupwise.core.errors import TrainingError
from groupwise.core.parts import Part
from groupwise.training.learner.weights import collect_weights

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

    folder: str = ""
    """Where the file goes, such as a folder in memory or on a disk that the engine sees too; one run a folder. Empty =
    `weights` in the run's folder."""

    def open(self, folder: Path | None) -> FileTransfer:
        """The transfer through the folder that is named here, or else the run's own place."""
        return FileTransfer(Path(self.folder).expanduser() if self.folder else folder)


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
        if self._folder is None:
            with TemporaryDirectory(prefix="groupwise-") as place:
                _send(Path(place), weights, engine, version)
            return
        try:
            _send(self._folder, weights, engine, version)
        finally:
            with suppress(OSError):  # somebody else's files may be there
                self._folder.rmdir()


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
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        save_file({name: value.contiguous() for name, value in collect_weights(weights).items()}, draft)
        draft.replace(path)
    except (OSError, SafetensorError) as error:  # the latter is what safetensors makes of a full disk
        with suppress(OSError):
            draft.unlink(missing_ok=True)
        reason = getattr(error, "strerror", None) or error
        raise TrainingError(
            f"the weights could not be written to {path} ({reason}); free some space, or name another place in "
            "training.weight_transfer.folder, then go on with --resume"
        ) from None
