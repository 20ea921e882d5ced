"""`groupwise check`: conformance of what users hand in."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from groupwise.cli.screen import file_progress, output
from groupwise.integrations.rollouts import open_rollouts
from groupwise.reports.faults import CHECKS, FaultTally

app = typer.Typer(no_args_is_help=True, help="Check what you hand in, with explanations.")


@app.callback()
def check() -> None:
    """Check what you hand in, with explanations."""


@app.command("rollouts")
def rollouts(
    file: Annotated[Path, typer.Argument(help="Rollouts: .jsonl, .jsonl.gz or .parquet.")],
    format: Annotated[str, typer.Option(help="auto, groupwise, verl_agent or verifiers.")] = "auto",
    as_json: Annotated[bool, typer.Option("--json", help="Print the faults as JSON.")] = False,
) -> None:
    """Look for faults of identity in recorded rollouts; exit with status 1 if credit would be wrong."""
    source = open_rollouts(file, format=format)
    tally, rows = FaultTally(), 0
    with file_progress(source.size, f"checking {file.name}") as progress:
        for part in source.parts(progress=progress):
            tally.add(part)
            rows += len(part)
    if as_json:
        typer.echo(json.dumps(_as_json(tally, rows), indent=2))
    else:
        _print(tally, rows, file)
    if tally.has_errors:
        raise typer.Exit(1)


def _as_json(tally: FaultTally, rows: int) -> dict[str, object]:
    return {
        "rows": rows,
        "faults": {
            check.kind: {
                "severity": check.severity,
                "count": tally.counts[check.kind],
                "meaning": check.meaning,
                "examples": [asdict(fault) for fault in tally.examples[check.kind]],
            }
            for check in CHECKS
        },
    }


def _print(tally: FaultTally, rows: int, file: Path) -> None:
    console = output()
    console.print(f"[bold]{escape(str(file))}[/]: {rows} rows, {len(CHECKS)} checks", highlight=False)
    for check in CHECKS:
        count = tally.counts[check.kind]
        if not count:
            console.print(f" [green]ok[/]       {check.kind}", highlight=False)
            continue
        colour = "red" if check.severity == "error" else "yellow"
        console.print(f" [{colour}]{check.severity:<8}[/] {check.kind}: {count}. {check.meaning}", highlight=False)
        for fault in tally.examples[check.kind]:
            lines = ", ".join(str(line) for line in fault.lines)
            console.print(f"          line {lines}: {escape(fault.found)}", highlight=False)
