"""Run folders as the command line names them, and what a run needs before anything is loaded."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from groupwise.cli.arguments.run_files import load_run_file
from groupwise.core.errors import ConfigError
from groupwise.core.run_paths import RunPaths

if TYPE_CHECKING:
    from groupwise.training.run_config import RunConfig

TRAINER = ("torch", "transformers", "tokenizers", "safetensors", "peft")
"""What the extra `train` installs."""


def need_trainer() -> None:
    """Stop with a sentence where the trainer's packages are not installed."""
    missing = [name for name in TRAINER if find_spec(name) is None]
    if missing:
        raise ConfigError(f"this command needs {', '.join(missing)}: pip install 'groupwise[train]'")


def load_run_config(folder: Path, set_: list[str] | None = None, unset: list[str] | None = None) -> RunConfig:
    """The resolved run file of a run's folder, with what the command line changes."""
    path = RunPaths(folder).config
    if not path.is_file():
        raise ConfigError(f"{folder}: there is no {path.name}; give the folder of a run, as `groupwise train` makes it")
    return load_run_file(path, set_, unset)
