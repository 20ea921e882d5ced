"""Run folders as the command line names them, and what a run needs before anything is loaded."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tomli_w

from groupwise.core.errors import ConfigError, FileError
from groupwise.core.journal_file import JOURNAL

if TYPE_CHECKING:
    from groupwise.training.run_config import RunConfig

CONFIG = "config.toml"
TRAINER = ("torch", "transformers", "tokenizers", "safetensors", "peft")
"""What the extra `train` installs."""


def need_trainer() -> None:
    """Stop with a sentence where the trainer's packages are not installed."""
    missing = [name for name in TRAINER if find_spec(name) is None]
    if missing:
        raise ConfigError(f"this command needs {', '.join(missing)}: pip install 'groupwise[train]'")


def run_config(folder: Path) -> RunConfig:
    """The resolved run file of a run's folder."""
    from groupwise.recipes.run_file import load_run  # a run's whole schema; not every command needs it

    if not (folder / CONFIG).is_file():
        raise ConfigError(f"{folder}: there is no {CONFIG}; give the folder of a run, as `groupwise train` makes it")
    return load_run(folder / CONFIG)


def holds_run(folder: Path) -> bool:
    """Whether a folder holds a run, begun or finished."""
    return (folder / JOURNAL).exists() or (folder / "checkpoints").exists()


def write_config(config: RunConfig, folder: Path) -> None:
    """Put the resolved run file into a run's folder."""
    draft = folder / f".{CONFIG}.tmp"  # moved into place whole: a run that is killed here must still resume
    try:
        folder.mkdir(parents=True, exist_ok=True)
        draft.write_text(tomli_w.dumps(config.config()), encoding="utf-8")
        draft.replace(folder / CONFIG)
    except OSError as error:
        with suppress(OSError):
            draft.unlink(missing_ok=True)
        raise FileError(
            f"{folder / CONFIG} could not be written ({error.strerror}); free some space, or give another folder"
        ) from None


def differences(old: Any, new: Any, path: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Settings in which two resolved run files differ, by path; None where one has no such setting.

    >>> list(differences({"training": {"updates": 3}}, {"training": {"updates": 5}}))
    [('training.updates', 3, 5)]
    """
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        for name in {**old, **new}:
            yield from differences(old.get(name), new.get(name), f"{path}.{name}" if path else name)
    elif old != new:
        yield path, old, new
