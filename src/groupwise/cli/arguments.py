"""What commands are given: run folders, run files, algorithms, columns of a file; and what they may run of them."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from groupwise.cli.screen import errors, print_line
from groupwise.methods import build
from groupwise.parts.algorithm import Algorithm
from groupwise.parts.outside import only_reading
from groupwise.store.mapped_rows import ColumnMap
from groupwise.store.run_folder import RunPaths
from groupwise.system.errors import ConfigError
from groupwise.training.config.run_file import parse_settings

if TYPE_CHECKING:
    from groupwise.training.config.run_config import RunConfig

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


# Run files as the command line gives them: a file, with `--set` and `--unset`.

Set = Annotated[list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Set a setting; may repeat.")]
Unset = Annotated[
    list[str] | None,
    typer.Option("--unset", metavar="KEY", help="Take a setting out of the file: its default counts; may repeat."),
]


def load_run_file(file: Path, set_: list[str] | None, unset: list[str] | None) -> RunConfig:
    """Read a run file with what the command line changes; what another recipe leaves out is printed."""
    from groupwise.training.config.run_file import load_run  # a run's whole schema; not every command needs it

    return load_run(file, overrides=set_ or (), unset=unset or (), tell=print_note)


def print_note(line: str) -> None:
    print_line(f"note: {line}", to=errors())


# Algorithms as the command line names them: by name, by name with options, or as a TOML file.


def build_algorithm(text: str) -> Algorithm:
    """Build what `hgpo`, `hgpo:depth=4,scale=none` or `my_run.toml` names."""
    from groupwise.training.config.run_file import load_algorithm  # a run's whole schema; not every command needs it

    if text.endswith(".toml"):
        return load_algorithm(Path(text))
    name, _, options = text.partition(":")
    try:
        settings = parse_settings(filter(None, options.split(",")))
    except ConfigError as error:
        raise ConfigError(f"{name}: option {error}") from None
    return build(name, **settings)


# Rollouts as the command line gives them: the format of the file, or which of its columns are which keys of a row.

Format = Annotated[str, typer.Option(help="auto, groupwise, verl_agent (verl's own dumps too) or verifiers.")]

MapEntries = Annotated[
    list[str] | None,
    typer.Option(
        "--map",
        metavar="KEY=COLUMN,...",
        help="Of a JSON Lines or Parquet file of any program: which of its columns is which key of a row, such as "
        "task=prompt_id,reward=reward_model.score. Without attempt, every row is an attempt.",
    ),
]
"""An option of commands that read rollouts."""


def read_column_map(entries: Sequence[str] | None) -> Mapping[str, str] | None:
    """The mapped columns, or None where none are."""
    return ColumnMap.parse(entries).columns if entries else None


# What a command may run of a run file that somebody else may have written.
#
# `train`, `launch`, `sweep`, `warmup`, `check env`, `check engine` and `check part` are asked to run what they are
# given. Every other command only reads, and imports nothing that a run names; those that could use it have `--trust`.

COMMANDS_THAT_RUN = ("train", "launch", "sweep", "warmup")
"""Commands that run what a run file names."""


def set_rights(context: typer.Context, *, may_run: bool) -> None:
    """Let a command, as long as it lasts, run what run files name, or else only read them."""
    context.with_resource(only_reading(trust=may_run))
    if may_run:
        context.with_resource(_add_current_folder_last())


def _apply_trust(context: typer.Context, trust: bool) -> bool:
    if trust:
        set_rights(context, may_run=True)
    return trust


Trust = Annotated[
    bool,
    typer.Option(
        "--trust",
        help="Load what the run names from outside groupwise too, and open its environment: this runs its code.",
        callback=_apply_trust,
    ),
]
"""An option of commands that read; its callback does all there is to do."""


def move_current_folder_back() -> None:
    """Look for modules where the user stands after everywhere else, whoever put that folder on the path.

    A file of the name `json.py` or `torch.py` in a folder that somebody sent must not be taken for the module.
    """
    here = _find_current_folder()
    moved = [place for place in sys.path if not place or place == here]
    sys.path[:] = [place for place in sys.path if place and place != here] + moved[:1]


@contextmanager
def _add_current_folder_last() -> Iterator[None]:
    """Look where the user stands for `kind = "module:Class"`, after everywhere else; not under PYTHONSAFEPATH."""
    here, before = _find_current_folder(), list(sys.path)
    if here is not None and here not in before and not sys.flags.safe_path:
        sys.path.append(here)
    try:
        yield
    finally:
        sys.path[:] = before


def _find_current_folder() -> str | None:
    """Where the user stands; None where that folder is gone."""
    try:
        return str(Path.cwd())
    except OSError:
        return None
