"""The `groupwise` command: collects the commands, and turns our errors into one line and status 2."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from groupwise import __version__
from groupwise.cli import (
    audit,
    check,
    doctor,
    evaluate,
    explain,
    inspect,
    panel,
    recipes,
    report,
    schema,
    train,
    warmup,
)
from groupwise.cli.screen import errors
from groupwise.core.errors import GroupwiseError

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Group-based reinforcement learning of language-model agents: credit you can trust and inspect.",
)
app.command("recipes")(recipes.recipes)
app.command("audit")(audit.audit)
app.command("explain")(explain.explain)
app.command("train")(train.train)
app.command("evaluate")(evaluate.evaluate)
app.command("warmup")(warmup.warmup)
app.command("doctor")(doctor.doctor)
app.command("schema")(schema.schema)
app.command("inspect")(inspect.inspect)
app.command("panel")(panel.panel)
app.command("report")(report.report)
app.add_typer(check.app, name="check")


def _print_version(asked: bool) -> None:
    if asked:
        typer.echo(f"groupwise {__version__}")
        raise typer.Exit


@app.callback()
def groupwise(
    version: Annotated[
        bool,
        typer.Option("--version", help="Print the version and exit.", is_eager=True, callback=_print_version),
    ] = False,
) -> None:
    """Group-based reinforcement learning of language-model agents: credit you can trust and inspect."""
    # The installed command, unlike `python -m`, does not look where the user stands for `kind = "module:Class"`.
    sys.path.insert(0, str(Path.cwd()))


def main() -> None:
    """Run the command line."""
    try:
        app()
    except GroupwiseError as error:
        errors().print(f"[bold red]error[/]: {escape(str(error))}", highlight=False, soft_wrap=True)
        sys.exit(2)
