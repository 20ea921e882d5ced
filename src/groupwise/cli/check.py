"""`groupwise check`: conformance of what users hand in."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape

from groupwise.cli.check_engine import engine
from groupwise.cli.rule_report import print_rules
from groupwise.cli.screen import file_progress, output, print_json
from groupwise.cli.trust import start
from groupwise.core.errors import ConfigError
from groupwise.core.parts.part import name_of, part_class
from groupwise.core.text.files import parse_value
from groupwise.envs.checker.suite import NUM_TASKS, check_environment
from groupwise.recordings.formats import open_rollouts
from groupwise.reports.faults import CHECKS, FaultTally

app = typer.Typer(no_args_is_help=True, help="Check what you hand in, with explanations.")
app.command("engine")(engine)


@app.callback()
def check(context: typer.Context) -> None:
    """Check what you hand in, with explanations."""
    start(context, runs=context.invoked_subcommand in ("env", "engine"))


@app.command("rollouts")
def rollouts(
    file: Annotated[Path, typer.Argument(help="Rollouts: .jsonl, .jsonl.gz or .parquet.")],
    format: Annotated[
        str, typer.Option(help="auto, groupwise, verl_agent (verl's own dumps too) or verifiers.")
    ] = "auto",
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
        print_json(_as_json(tally, rows))
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


@app.command("env")
def env(
    kind: Annotated[
        str, typer.Argument(metavar="MODULE:CLASS", help="Your environment, or the kind of a built-in one.")
    ],
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="FIELD=VALUE", help="A field of the environment; may repeat.")
    ] = None,
    tasks: Annotated[
        int, typer.Option(min=1, help="Training tasks to play; fewer for a slow environment.")
    ] = NUM_TASKS,
    seed: Annotated[int, typer.Option(help="For the tasks and actions that are tried.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print the results as JSON.")] = False,
) -> None:
    """Check an environment against the rules the loop relies on; exit with status 1 if one is broken.

    Where the environment cannot be had, because its package or its data is missing, one line says so, with status 2.
    """
    part: Any = part_class("env", kind)(**_fields(settings or []))
    results = check_environment(part, tasks=tasks, seed=seed)
    if as_json:
        print_json({"env": part.config(), "rules": [asdict(result) for result in results]})
    else:
        print_rules(name_of(part), results)
    if any(result.status == "broken" for result in results):
        raise typer.Exit(1)


def _fields(settings: Sequence[str]) -> dict[str, Any]:
    """Read `field=value` settings; a value is TOML, or else plain text."""
    fields: dict[str, Any] = {}
    for setting in settings:
        name, equals, value = setting.partition("=")
        if not equals:
            raise ConfigError(f"--set {setting}: found no '='; write FIELD=VALUE")
        fields[name.strip()] = parse_value(value.strip())
    return fields
