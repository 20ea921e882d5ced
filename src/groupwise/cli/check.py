"""`groupwise check`: test rollouts, an environment, an engine or a part against the rules of a run."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape

from groupwise.cli.arguments import (
    EnvFields,
    Format,
    MapEntries,
    Set,
    Unset,
    argument,
    flag,
    load_run_file,
    need_trainer,
    option,
    read_column_map,
    set_rights,
)
from groupwise.cli.help import Command, CommandGroup
from groupwise.cli.screen import file_progress, output, print_json
from groupwise.envs.checker import NUM_TASKS, check_environment
from groupwise.parts.check_part import check_part
from groupwise.parts.outside import load_outside
from groupwise.parts.part import Part, find_part_class, name_of
from groupwise.report.identity_faults import CHECKS, FaultTally
from groupwise.store.formats import open_rollouts
from groupwise.system.errors import ConfigError
from groupwise.system.quoted_errors import RuleResult
from groupwise.training.config.run_file import parse_settings

check = typer.Typer(cls=CommandGroup, no_args_is_help=True, help="Check your rollouts, environment, engine or part.")
RULE_WORDS = {"kept": ("ok", "green"), "broken": ("broken", "red"), "not tested": ("not tested", "dim")}
"""Printed word and colour of each status of a rule."""


@check.callback()
def begin(context: typer.Context) -> None:
    """Check your rollouts, environment, engine or part."""
    set_rights(context, may_run=context.invoked_subcommand in ("env", "engine", "part"))


@check.command("engine", cls=Command)
def engine(
    file: Annotated[Path, argument("RUN.toml", "Run file. Its sections model and engine are used.")],
    set_: Set = None,
    unset: Unset = None,
    as_json: Annotated[bool, flag("--json", "Print the results as JSON.")] = False,
) -> None:
    """Test the engine of a run file against the rules of the loop. If one is broken, the exit status is 1."""
    need_trainer()
    config = load_run_file(file, set_, unset)
    from groupwise.training.doctor.doctor import check_run_engine

    results = check_run_engine(config)
    _show_rules(results, config.engine, {"engine": config.config()["engine"]}, as_json=as_json)


@check.command("rollouts", cls=Command)
def rollouts(
    file: Annotated[Path, argument("ROLLOUTS", "Rollouts: .jsonl, .jsonl.gz or .parquet.")],
    format: Format = "auto",
    map_: MapEntries = None,
    as_json: Annotated[bool, flag("--json", "Print the problems as JSON.")] = False,
) -> None:
    """Find wrong ids, steps and states in recorded rollouts. If advantages would be wrong, the exit status is 1."""
    source = open_rollouts(file, format=format, columns=read_column_map(map_))
    tally, rows = FaultTally(), 0
    with file_progress(source.size, f"checking {file.name}") as progress:
        for chunk in source.chunks(progress=progress):
            tally.add(chunk)
            rows += len(chunk)
    if as_json:
        faults = {
            check.kind: {
                "severity": check.severity,
                "count": tally.counts[check.kind],
                "meaning": check.meaning,
                "examples": tally.examples[check.kind],
            }
            for check in CHECKS
        }
        print_json({"rows": rows, "faults": faults})
    else:
        _print_faults(tally, rows, file)
    if tally.has_errors:
        raise typer.Exit(1)


def _print_faults(tally: FaultTally, rows: int, file: Path) -> None:
    console = output()
    console.print(f"[bold]{escape(str(file))}[/]: {rows} rows, {len(CHECKS)} checks")
    for check in CHECKS:
        count = tally.counts[check.kind]
        if not count:
            console.print(f" [green]ok[/]       {check.kind}")
            continue
        colour = "red" if check.severity == "error" else "yellow"
        console.print(f" [{colour}]{check.severity:<8}[/] {check.kind}: {count}. {check.meaning}")
        for fault in tally.examples[check.kind]:
            lines = ", ".join(str(line) for line in fault.lines)
            console.print(f"          line {lines}: {escape(fault.found)}")


@check.command("env", cls=Command)
def env(
    kind: Annotated[str, argument("MODULE:CLASS", "Your environment, or the kind of a built-in one.")],
    settings: EnvFields = None,
    tasks: Annotated[int, option("N", "Number of training tasks to run.", min=1)] = NUM_TASKS,
    seed: Annotated[int, option("N", "Seed of the tasks and actions.")] = 0,
    as_json: Annotated[bool, flag("--json", "Print the results as JSON.")] = False,
) -> None:
    """Test an environment against the rules of the loop. If one is broken, the exit status is 1.

    If the environment's package or data is missing, the exit status is 2.
    """
    part: Any = find_part_class("env", kind)(**parse_settings(settings or (), option="--set "))
    results = check_environment(part, tasks=tasks, seed=seed)
    _show_rules(results, part, {"env": part.config()}, as_json=as_json)


@check.command("part", cls=Command)
def part(
    place: Annotated[str, argument("MODULE:CLASS", "Your part: a grouper, a signal, a loss, ...")],
    settings: Annotated[list[str] | None, option("KEY=VALUE", "Set a field of the part. Repeatable.", "--set")] = None,
    as_json: Annotated[bool, flag("--json", "Print the results as JSON.")] = False,
) -> None:
    """Test your own part against the rules of its slot. If one is broken, the exit status is 1."""
    kind: Any = load_outside("part", place)
    slot = getattr(kind, "slot", "")
    if not (isinstance(kind, type) and issubclass(kind, Part)) or not slot:
        raise ConfigError(f"{place!r} is no part with a slot; derive the class from groupwise.Part, as Part, slot=...")
    if slot in ("env", "engine"):
        raise ConfigError(f"{place!r} is an {slot}, which has rules of its own; use `groupwise check {slot}`")
    made = kind(**parse_settings(settings or (), option="--set "))
    _show_rules(check_part(made), made, {"part": made.config()}, as_json=as_json)


def _show_rules(results: Sequence[RuleResult], part: object, about: dict[str, Any], *, as_json: bool) -> None:
    """Print one line per rule, with the reason under broken ones; exit with status 1 if one is broken."""
    console, statuses = output(), [result.status for result in results]
    broken, untested = statuses.count("broken"), statuses.count("not tested")
    if as_json:
        print_json(about | {"rules": results})
    else:
        counts = f"{len(results)} rules, {broken} broken, {untested} not tested"
        console.print(f"[bold]{escape(name_of(part))}[/]: {counts}")
    for result in () if as_json else results:
        word, colour = RULE_WORDS[result.status]
        console.print(f" [{colour}]{word:<10}[/] {result.rule}: {escape(result.found)}")
        if result.status == "broken":
            console.print(f"{'':<12}[dim]Why it matters: {escape(result.why)}[/]")
    if broken:
        raise typer.Exit(1)
