"""Weight transfer, from a learner to an engine: within the process, through a file, or as the folder of an adapter."""

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


FREE_SPACE = "free some space, or name another place in training.weight_transfer.folder, then go on with --resume"


class WeightTransfer(Protocol):
    """A way that is open between one learner and one engine."""

    def hand_over(self, weights: NamedWeights, engine: Engine, *, version: int) -> None:
        """See to it that the engine has the weights and calls them by the version when this returns.

        It may be asked for any version at any time: a run that is resumed goes back, and so does one that is evaluated
        at an earlier checkpoint. The canary then compares what the engine says with what the learner says.
        """


class WeightTransferPart(Protocol):
    """Fills the slot `weight_transfer`: brings new weights from the learner to the engine."""

    def open(self, folder: Path | None) -> WeightTransfer:
        """Open the way for a run.

        `folder` is a place of the run's own for files on the way, which need not exist; None where the run is only
        read, and nothing may be written into its folder.
        """


WeightTransferSlot = Annotated[WeightTransferPart, Slot("weight_transfer")]
"""A field of a run file that a weight transfer fills."""


class InMemory(Part, slot="weight_transfer"):
    """The engine copies the learner's tensors, within one process."""

    def open(self, folder: Path | None) -> InMemory:
        return self

    def hand_over(self, weights: NamedWeights, engine: Engine, *, version: int) -> None:
        engine.load(collect_weights(weights), version=version)


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
        return FileTransfer(choose_folder(self.folder, folder))


@dataclass(frozen=True)
class FileTransfer:
    """Writes a file for each hand-over."""

    folder: Path | None

    def hand_over(self, weights: NamedWeights, engine: Engine, *, version: int) -> None:
        from safetensors.torch import load_file

        with hold_folder(self.folder) as place:
            path = place / f"{version:04d}.safetensors"
            try:
                _write(path, weights)
                if isinstance(engine, LoadsFiles):
                    engine.load_file(path, version=version)
                else:
                    engine.load(load_file(path), version=version)
            finally:
                with suppress(OSError):
                    path.unlink(missing_ok=True)


def _write(path: Path, weights: NamedWeights) -> None:
    """Write a file whole or not at all."""
    from safetensors import SafetensorError
    from safetensors.torch import save_file

    tensors = {name: value.contiguous() for name, value in collect_weights(weights).items()}
    try:
        with write_atomic(path) as draft:
            path.parent.mkdir(parents=True, exist_ok=True)
            save_file(tensors, draft)
    except (OSError, SafetensorError) as error:  # the latter is what safetensors makes of a full disk
        reason = getattr(error, "strerror", None) or error
        raise TrainingError(f"the weights could not be written to {path} ({reason}); {FREE_SPACE}") from None
    except RuntimeError as error:  # what safetensors makes of weights that share memory
        raise TrainingError(
            f"the weights could not be written to {path} ({quote_line(str(error), limit=300)}); let the learner give "
            "each weight under one name and with memory of its own, or use the weight_transfer in_memory"
        ) from None


def choose_folder(named: str, of_run: Path | None) -> Path | None:
    """The folder that a run file names, or else the run's own place; None = a temporary one for each hand-over."""
    place = Path(named) if named else of_run
    # An engine in another process may stand in another folder.
    return None if place is None else place.absolute()


@contextmanager
def hold_folder(folder: Path | None) -> Iterator[Path]:
    """A place for files during a hand-over; it goes afterwards, unless somebody else's files are there."""
    if folder is None:
        with TemporaryDirectory(prefix="groupwise-") as place:
            yield Path(place)
        return
    try:
        yield folder
    finally:
        with suppress(OSError):  # somebody else's files may be there
            folder.rmdir()


class Adapter(Part, slot="weight_transfer"):
    """A LoRA adapter goes through a folder named by its version, which is gone once the engine has it.

    The model needs a LoRA adapter (`model.lora_rank`), and the engine servers that were started for adapters.
    """

    folder: PathText = ""
    """Where the folders go, such as a place in memory or on a disk that the servers see too; one run a folder. Empty =
    `weights` in the run's folder."""

    def open(self, folder: Path | None) -> AdapterTransfer:
        return AdapterTransfer(choose_folder(self.folder, folder))


@dataclass(frozen=True)
class AdapterTransfer:
    """Writes an adapter's folder for each hand-over."""

    folder: Path | None

    def hand_over(self, weights: NamedWeights, engine: Engine, *, version: int) -> None:
        from safetensors import SafetensorError

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
        with hold_folder(self.folder) as place:
            folder = place / f"{version:04d}"
            try:
                try:
                    write_adapter_folder(folder, engine.adapter_settings, table)
                except (OSError, SafetensorError) as error:  # the latter is what safetensors makes of a full disk
                    reason = quote_line(str(getattr(error, "strerror", None) or error), limit=300)
                    raise TrainingError(
                        f"the adapter could not be written to {folder} ({reason}); {FREE_SPACE}"
                    ) from None
                engine.load_adapter(folder, version=version)
            finally:
                shutil.rmtree(folder, ignore_errors=True)
