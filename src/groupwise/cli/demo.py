"""`groupwise demo`: train the household example and write its report, from an installed package."""

from __future__ import annotations

import shlex
import shutil
from pathlib import Path
from typing import Annotated

from groupwise.cli.arguments import Set, Unset, need_trainer, option
from groupwise.cli.report import report
from groupwise.cli.screen import print_line
from groupwise.cli.train import train
from groupwise.store.run_folder import REPORT, RunPaths
from groupwise.system.errors import FileError

RUN_FILE = Path(__file__).with_name("demo.toml")
"""A copy of examples/household.toml."""


def demo(
    out: Annotated[Path, option("FOLDER", "Folder for run file, run and report.")] = Path("demo"),
    set_: Set = None,
    unset: Unset = None,
) -> None:
    """Train an agent in a text household, and write a report. Repeat the command to resume.

    It takes a few minutes on two CPU cores. Nothing is downloaded.
    """
    need_trainer()
    file, run = out / "household.toml", out / "household"
    try:
        out.mkdir(parents=True, exist_ok=True)
        if not file.exists():
            shutil.copyfile(RUN_FILE, file)
    except OSError as error:
        raise FileError(f"{file} cannot be written ({error.strerror}); choose another folder with --out") from None
    train(file, out=run, set_=set_, unset=unset, resume=RunPaths(run).holds_run())
    report([run], out=out / REPORT)
    print_line("Open it in a browser. To train with another method:")
    print_line(f"  groupwise train {shlex.quote(str(file))} --set algorithm.method=grpo --out runs/grpo")
