"""`groupwise report`: a run as one page of HTML that opens anywhere."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from groupwise.cli.arguments.trust import Trust
from groupwise.cli.terminal.screen import output
from groupwise.core.run_paths import REPORT, RunPaths
from groupwise.reports.run.method_name import find_method_name
from groupwise.reports.run.run_folder import RunFolder


def report(
    run: Annotated[Path, typer.Argument(help="Folder of a run.")],
    out: Annotated[Path | None, typer.Option(help=f"File to write; default: {REPORT} in the folder.")] = None,
    trust: Trust = False,
) -> None:
    """Write a run as one HTML page that opens offline: verdict, curves, groups, and attempts with their credit."""
    from groupwise.reports.run.page import render_page, write_page

    path = out or RunPaths(run).report
    with RunFolder(run) as folder:
        method, note = find_method_name(folder)
        size = write_page(path, render_page(folder, method=method, note=note))
    output().print(f"wrote [bold]{escape(str(path))}[/] ({size / 1000:,.0f} kB)", highlight=False, soft_wrap=True)
