"""Arguments of several commands: run folders, run files, algorithms, columns; and the right to run their code."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

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


def argument(metavar: str, help: str) -> Any:
    return typer.Argument(metavar=metavar, help=help)


def option(metavar: str, help: str, *names: str, **checks: Any) -> Any:
    """An option with a value; `names` replace the name that follows from the parameter."""
    return typer.Option(*names, metavar=metavar, help=help, **checks)


def flag(name: str, help: str, **checks: Any) -> Any:
    return typer.Option(name, help=help, **checks)


TRAINER = ("torch", "transformers", "tokenizers", "safetensors", "peft")
"""The packages of the extra `train`."""


def need_trainer() -> None:
    """Raise an error if packages of the extra `train` are missing."""
    missing = [name for name in TRAINER if find_spec(name) is None]
    if missing:
        raise ConfigError(f"this command needs {', '.join(missing)}: pip install 'groupwise[train]'")


def load_run_config(folder: Path, set_: list[str] | None = None, unset: list[str] | None = None) -> RunConfig:
    """The resolved run file of a run folder, with the changes of the command line."""
    path = RunPaths(folder).config
    if not path.is_file():
        raise ConfigError(f"{folder}: there is no {path.name}; give a run folder, as `groupwise train` creates it")
    return load_run_file(folder, set_, unset)


# Run files with `--set` and `--unset`.

Set = Annotated[list[str] | None, option("KEY=VALUE", "Change a setting. Repeatable.", "--set")]
EnvFields = Annotated[list[str] | None, option("KEY=VALUE", "Set a field of the environment. Repeatable.", "--set")]
Unset = Annotated[list[str] | None, option("KEY", "Use the default of a setting. Repeatable.", "--unset")]


def load_run_file(file: Path, set_: list[str] | None, unset: list[str] | None) -> RunConfig:
    from groupwise.training.config.run_file import load_run  # imports the whole schema; not every command needs it

    return load_run(file, overrides=set_ or (), unset=unset or (), tell=print_note)


def print_note(line: str) -> None:
    print_line(f"note: {line}", to=errors())


def build_algorithm(text: str) -> Algorithm:
    """Build the algorithm of `hgpo`, `hgpo:depth=4,scale=none` or `my_run.toml`."""
    from groupwise.training.config.run_file import load_algorithm  # imports the whole schema

    if text.endswith(".toml"):
        return load_algorithm(Path(text))
    name, _, options = text.partition(":")
    try:
        settings = parse_settings(filter(None, options.split(",")))
    except ConfigError as error:
        raise ConfigError(f"{name}: option {error}") from None
    return build(name, **settings)


# Options of commands that read rollouts.

Format = Annotated[
    str, option("NAME", "File format: auto, groupwise, verl_agent (also verl's own dumps) or verifiers.")
]

MapEntries = Annotated[
    list[str] | None,
    option(
        "KEY=COLUMN,...",
        "Column of each key, for files of any program: task=prompt_id,reward=score. If rollout is not mapped, every "
        "row is one rollout.",
        "--map",
    ),
]


def read_column_map(entries: Sequence[str] | None) -> Mapping[str, str] | None:
    return ColumnMap.parse(entries).columns if entries else None


# The right to run code of a run file, which may come from someone else.
#
# `demo`, `train`, `launch`, `sweep`, `warmup`, `check env`, `check engine` and `check part` run the code that they get.
# Every other command only reads and imports nothing that a run names, unless it has `--trust`.

COMMANDS_THAT_RUN = ("demo", "train", "launch", "sweep", "warmup")


def set_rights(context: typer.Context, *, may_run: bool) -> None:
    """Allow or forbid a command to run the code that run files name, until it ends."""
    context.with_resource(only_reading(trust=may_run))
    if may_run:
        context.with_resource(_add_current_folder_last())


def _apply_trust(context: typer.Context, trust: bool) -> bool:
    if trust:
        set_rights(context, may_run=True)
    return trust


Trust = Annotated[
    bool,
    flag(
        "--trust",
        "Load outside code that the run names, and open its environment. This runs that code.",
        callback=_apply_trust,
    ),
]


def move_current_folder_back() -> None:
    """Move the current folder to the end of the module path.

    Otherwise a file `json.py` or `torch.py` in a downloaded folder would be imported in place of the module.
    """
    here = _find_current_folder()
    moved = [place for place in sys.path if not place or place == here]
    sys.path[:] = [place for place in sys.path if place and place != here] + moved[:1]


@contextmanager
def _add_current_folder_last() -> Iterator[None]:
    """Search the current folder last for `kind = "module:Class"`; not with PYTHONSAFEPATH."""
    here, before = _find_current_folder(), list(sys.path)
    if here is not None and here not in before and not sys.flags.safe_path:
        sys.path.append(here)
    try:
        yield
    finally:
        sys.path[:] = before


def _find_current_folder() -> str | None:
    """The current folder; None if it was deleted."""
    try:
        return str(Path.cwd())
    except OSError:
        return None
