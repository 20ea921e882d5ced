"""The `groupwise` command: collects the commands, and turns our errors into one line and status 2."""

from __future__ import annotations

import sys
from typing import Annotated, Any

import typer

from groupwise import __version__
from groupwise.cli import (
    audit,
    check,
    doctor,
    evaluate,
    explain,
    export,
    inspect,
    lab,
    launch,
    panel,
    preview,
    recipes,
    report,
    schema,
    serve,
    sweep,
    train,
    warmup,
)
from groupwise.cli.arguments import COMMANDS_THAT_RUN, move_current_folder_back, set_rights
from groupwise.cli.screen import errors, finish_streams, prepare_streams, print_error, print_line, show_traceback
from groupwise.system.errors import GroupwiseError

app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="Group-based reinforcement learning of language-model agents: credit you can trust and inspect.",
)
app.command("recipes")(recipes.recipes)
app.command("audit")(audit.audit)
app.command("explain")(explain.explain)
app.command("preview")(preview.preview)
app.command("train")(train.train)
app.command("launch")(launch.launch)
app.command("sweep")(sweep.sweep)
app.command("evaluate")(evaluate.evaluate)
app.command("lab")(lab.lab)
app.command("warmup")(warmup.warmup)
app.command("serve")(serve.serve)
app.command("doctor")(doctor.doctor)
app.command("schema")(schema.schema)
app.command("inspect")(inspect.inspect)
app.command("panel")(panel.panel)
app.command("report")(report.report)
app.command("export")(export.export)
app.add_typer(check.app, name="check")


def _print_version(asked: bool) -> None:
    if asked:
        print_line(f"groupwise {__version__}")
        raise typer.Exit


@app.callback()
def groupwise(
    context: typer.Context,
    version: Annotated[
        bool,
        typer.Option("--version", help="Print the version and exit.", is_eager=True, callback=_print_version),
    ] = False,
) -> None:
    """Group-based reinforcement learning of language-model agents: credit you can trust and inspect."""
    set_rights(context, may_run=context.invoked_subcommand in COMMANDS_THAT_RUN)


def main() -> None:
    """Run the command line; whatever happens, what it says is one line, and status 2 where we refuse."""
    prepare_streams()
    move_current_folder_back()
    try:
        status = app(prog_name="groupwise", standalone_mode=False)
    except GroupwiseError as error:
        print_error(str(error))
        status = 2
    except typer.Abort:
        status = 1
    except Exception as error:
        if not hasattr(error, "format_message"):  # of typer's own, which say what is wrong with the command line
            sys.excepthook = show_traceback  # typer has set its own
            raise
        status = _print_usage(error)
    finish_streams(status if isinstance(status, int) else 0)


def _print_usage(error: Any) -> int:
    """Say what is wrong with a command line; where there was none at all, the help has been printed."""
    context = getattr(error, "ctx", None)
    if type(error).__name__ != "NoArgsIsHelpError":
        if context:
            print_line(f"{context.get_usage()}\nTry '{context.command_path} --help' for help.", to=errors())
        print_error(error.format_message())
    return int(error.exit_code)
