"""`groupwise report`: write one or several runs as one HTML page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from rich.markup import escape

from groupwise.cli.arguments import Trust, argument, option
from groupwise.cli.screen import print_line
from groupwise.store.run_folder import REPORT, SWEEP_PLAN, RunPaths
from groupwise.system.errors import ConfigError
from groupwise.training.run_reader import RunFolder


def report(
    runs: Annotated[list[Path], argument("RUN...", "Run folders or sweep folders.")],
    out: Annotated[
        Path | None,
        option("FILE", f"File to write; default: {REPORT} in the run folder, for several runs in the current one."),
    ] = None,
    trust: Trust = False,
) -> None:
    """Write one or several runs as one HTML page. It opens offline, and has result, curves, groups and advantages."""
    from groupwise.report.page import render_page, write_page

    path = out or (RunPaths(runs[0]).report if len(runs) == 1 else Path(REPORT))
    if out is None and len(runs) > 1 and path.exists():
        raise ConfigError(
            f"{path} exists already, maybe from other runs; choose another file with --out, or give --out {path} to "
            "replace it"
        )
    if len(runs) == 1 and not (runs[0] / SWEEP_PLAN).is_file():
        with RunFolder(runs[0]) as folder:
            method, note = folder.find_method()
            page = render_page(folder, method=method, note=note)
    else:
        from groupwise.report.runs import read_variants
        from groupwise.report.runs_page import render_runs_page

        variants = read_variants(runs)
        name = runs[0].resolve().name if len(runs) == 1 else f"{sum(len(variant.runs) for variant in variants)} runs"
        page = render_runs_page(variants, name=name)
    size = write_page(path, page)
    print_line(f"wrote [bold]{escape(str(path))}[/] ({size / 1000:,.0f} kB)", markup=True)
