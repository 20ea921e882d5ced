"""`groupwise report`: a run, or several together, as one page of HTML that opens anywhere."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from groupwise.cli.arguments import Trust
from groupwise.cli.screen import print_line
from groupwise.store.run_folder import REPORT, SWEEP_PLAN, RunPaths
from groupwise.system.errors import ConfigError
from groupwise.training.run_reader import RunFolder


def report(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN...", help="Folders of runs, or of a sweep.")],
    out: Annotated[
        Path | None, typer.Option(help=f"File to write; default: {REPORT} in the folder, or here for several folders.")
    ] = None,
    trust: Trust = False,
) -> None:
    """Write a run, or several over each other, as one HTML page that opens offline: verdict, curves, groups, credit."""
    from groupwise.report.page import render_page, write_page

    path = out or (RunPaths(runs[0]).report if len(runs) == 1 else Path(REPORT))
    if out is None and len(runs) > 1 and path.exists():
        raise ConfigError(
            f"{path} is here already, and may be of other runs; give a name with --out, {path} again to replace it"
        )
    if len(runs) == 1 and not (runs[0] / SWEEP_PLAN).is_file():
        with RunFolder(runs[0]) as folder:
            method, note = folder.find_method()
            page = render_page(folder, method=method, note=note)
    else:
        from groupwise.report.runs import read_arms
        from groupwise.report.runs_page import render_runs_page

        arms = read_arms(runs)
        name = runs[0].resolve().name if len(runs) == 1 else f"{sum(len(arm.runs) for arm in arms)} runs"
        page = render_runs_page(arms, name=name)
    size = write_page(path, page)
    print_line(f"wrote [bold]{escape(str(path))}[/] ({size / 1000:,.0f} kB)", markup=True)
