"""What a command may run of a run file that somebody else may have written.

`train`, `launch`, `sweep`, `warmup`, `check env` and `check engine` are asked to run what they are given. Every other
command only reads, and imports nothing that a run names; those that could use it have `--trust`.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from groupwise.core.parts.trust import only_reading

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
