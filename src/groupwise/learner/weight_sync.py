"""Weight sync from a learner to an engine: within the process, through a file, or as the folder of an adapter."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Protocol, runtime_checkable

from groupwise.engines.model_source import AdapterEngine, write_adapter_folder
from groupwise.learner.protocol import collect_weights
from groupwise.parts.part import Part, Slot
from groupwise.parts.path_settings import PathText
from groupwise.system.errors import ConfigError, TrainingError
from groupwise.system.files import write_atomic
from groupwise.system.text import quote_line

if TYPE_CHECKING:
    from groupwise.engines.engine import Engine
    from groupwise.learner.protocol import NamedWeights


FREE_SPACE = "free some space, or set another training.weight_sync.folder, then continue with --resume"


class WeightSync(Protocol):
    """The connection between one learner and one engine."""

    def sync(self, weights: NamedWeights, engine: Engine, *, version: int) -> None:
        """Load the weights into the engine; when this returns, the engine has them and reports the version.

        Versions may come in any order: a resumed run goes back, and so does the evaluation of an earlier checkpoint.
        The weight check runs afterwards.
        """


class WeightSyncPart(Protocol):
    """Fills the slot `weight_sync`: brings new weights from the learner to the engine."""

    def open(self, folder: Path | None) -> WeightSync:
        """Open the connection for a run.

        `folder` is the run's own folder for temporary files; it need not exist. None = nothing may be written into the
        run's folder, because the run is only read.
        """


WeightSyncSlot = Annotated[WeightSyncPart, Slot("weight_sync")]
"""A field of a run file that a weight transfer fills."""


class InMemory(Part, slot="weight_sync"):
    """The engine copies the learner's tensors, within one process."""

    def open(self, folder: Path | None) -> InMemory:
        return self

    def sync(self, weights: NamedWeights, engine: Engine, *, version: int) -> None:
        engine.load(collect_weights(weights), version=version)


@runtime_checkable
class LoadsFiles(Protocol):
    """An engine that reads files itself; for any other engine, the file is read here."""

    def load_file(self, path: Path, *, version: int) -> None:
        """Load the weights of a safetensors file, by name, before this returns."""


class ThroughFile(Part, slot="weight_sync"):
    """Weights go through a safetensors file, which is deleted once the engine has them.

    An engine with a method `load_file(path, version=...)` gets the path; for any other the file is read back here.
    """

    folder: PathText = ""
    """Folder of the file, for example in memory or on a disk that the engine can read; not shared between runs. Empty =
    `weights` in the run's folder."""

    def open(self, folder: Path | None) -> FileTransfer:
        return FileTransfer(choose_folder(self.folder, folder))


@dataclass(frozen=True)
class FileTransfer:
    """Writes one file per weight sync."""

    folder: Path | None

    def sync(self, weights: NamedWeights, engine: Engine, *, version: int) -> None:
        from safetensors import SafetensorError
        from safetensors.torch import load_file, save_file

        tensors = {name: value.contiguous() for name, value in collect_weights(weights).items()}
        with hold_folder(self.folder) as place:
            path = place / f"{version:04d}.safetensors"
            try:
                try:
                    with write_atomic(path) as draft:
                        path.parent.mkdir(parents=True, exist_ok=True)
                        save_file(tensors, draft)
                except (OSError, SafetensorError) as error:  # safetensors raises the latter if the disk is full
                    reason = getattr(error, "strerror", None) or error
                    raise TrainingError(
                        f"the weights could not be written to {path} ({reason}); {FREE_SPACE}"
                    ) from None
                except RuntimeError as error:  # safetensors raises it if weights share memory
                    raise TrainingError(
                        f"the weights could not be written to {path} ({quote_line(str(error), limit=300)}); each "
                        "weight of the learner needs one name and its own memory, or use the weight_sync in_memory"
                    ) from None
                if isinstance(engine, LoadsFiles):
                    engine.load_file(path, version=version)
                else:
                    engine.load(load_file(path), version=version)
            finally:
                with suppress(OSError):
                    path.unlink(missing_ok=True)


def choose_folder(named: str, of_run: Path | None) -> Path | None:
    """The folder of the run file, or else the run's own; None = a temporary folder per weight sync."""
    place = Path(named) if named else of_run
    # An engine in another process may have another working directory.
    return None if place is None else place.absolute()


@contextmanager
def hold_folder(folder: Path | None) -> Iterator[Path]:
    """A folder for files during a weight sync; it is deleted afterwards if it is empty."""
    if folder is None:
        with TemporaryDirectory(prefix="groupwise-") as place:
            yield Path(place)
        return
    try:
        yield folder
    finally:
        with suppress(OSError):  # it may hold other files
            folder.rmdir()


class Adapter(Part, slot="weight_sync"):
    """A LoRA adapter goes through a folder named by its version, which is deleted once the engine has it.

    The model needs a LoRA adapter (`model.lora_rank`), and the servers of the engine must be started for adapters.
    """

    folder: PathText = ""
    """Where these folders are made, for example in memory or on a disk that the servers can read; not shared between
    runs. Empty = `weights` in the run's folder."""

    def open(self, folder: Path | None) -> AdapterTransfer:
        return AdapterTransfer(choose_folder(self.folder, folder))


@dataclass(frozen=True)
class AdapterTransfer:
    """Writes one adapter folder per weight sync."""

    folder: Path | None

    def sync(self, weights: NamedWeights, engine: Engine, *, version: int) -> None:
        from safetensors import SafetensorError

        table = collect_weights(weights)
        if not isinstance(engine, AdapterEngine):
            raise ConfigError(
                f"training.weight_sync: the engine {type(engine).__name__} cannot load adapters; use in_memory, "
                "or a vLLM engine"
            )
        if engine.adapter_settings is None or not all(".lora_" in name for name in table):
            raise ConfigError(
                "training.weight_sync: the model has no LoRA adapter, or more than the adapter trains; set "
                "model.lora_rank, or use through_file"
            )
        with hold_folder(self.folder) as place:
            folder = place / f"{version:04d}"
            try:
                try:
                    write_adapter_folder(folder, engine.adapter_settings, table)
                except (OSError, SafetensorError) as error:  # safetensors raises the latter if the disk is full
                    reason = quote_line(str(getattr(error, "strerror", None) or error), limit=300)
                    raise TrainingError(
                        f"the adapter could not be written to {folder} ({reason}); {FREE_SPACE}"
                    ) from None
                engine.load_adapter(folder, version=version)
            finally:
                shutil.rmtree(folder, ignore_errors=True)
