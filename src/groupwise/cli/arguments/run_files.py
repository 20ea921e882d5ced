"""Run files as the command line gives them: a file, with `--set` and `--unset`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from groupwise.cli.terminal.screen import errors

if TYPE_CHECKING:
    from groupwise.training.run_config import RunConfig

Set = Annotated[list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Set a setting; may repeat.")]
Unset = Annotated[
    list[str] | None,
    typer.Option("--unset", metavar="KEY", help="Take a setting out of the file: its default counts; may repeat."),
]


def load_run_file(file: Path, set_: list[str] | None, unset: list[str] | None) -> RunConfig:
    """Read a run file with what the command line changes; what another recipe leaves out is printed."""
    from groupwise.config.run_file import load_run  # a run's whole schema; not every command needs it

    return load_run(file, overrides=set_ or (), unset=unset or (), tell=print_note)


def print_note(line: str) -> None:
    """Print a note on standard error."""
    errors().print(f"note: {line}", highlight=False, markup=False, soft_wrap=True)
