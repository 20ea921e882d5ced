"""The `groupwise` command: collects the commands, and prints our errors as one line with status 2."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
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
    methods,
    preview,
    report,
    schema,
    serve,
    sweep,
    tasks,
    train,
    warmup,
)
from groupwise.cli.arguments import COMMANDS_THAT_RUN, move_current_folder_back, set_rights
from groupwise.cli.screen import errors, finish_streams, prepare_streams, print_error, print_line, show_traceback
from groupwise.system.errors import GroupwiseError

COMMANDS: dict[str, Callable[..., None]] = {
    "methods": methods.methods,
    "audit": audit.audit,
    "explain": explain.explain,
    "preview": preview.preview,
    "train": train.train,
    "launch": launch.launch,
    "sweep": sweep.sweep,
    "evaluate": evaluate.evaluate,
    "lab": lab.lab,
    "warmup": warmup.warmup,
    "serve": serve.serve,
    "doctor": doctor.doctor,
    "schema": schema.schema,
    "inspect": inspect.inspect,
    "tasks": tasks.tasks,
    "report": report.report,
    "export": export.export,
}


def _print_version(asked: bool) -> None:
    if asked:
        print_line(f"groupwise {__version__}")
        raise typer.Exit


def begin(
    context: typer.Context,
    version: Annotated[
        bool,
        typer.Option("--version", help="Print the version and exit.", is_eager=True, callback=_print_version),
    ] = False,
) -> None:
    """Train LLM agents with group-based reinforcement learning, and inspect every advantage."""
    set_rights(context, may_run=context.invoked_subcommand in COMMANDS_THAT_RUN)


def make_app(commands: Mapping[str, Callable[..., None]]) -> typer.Typer:
    app = typer.Typer(no_args_is_help=True, pretty_exceptions_enable=False, callback=begin)
    for name, command in commands.items():
        app.command(name)(command)
    app.add_typer(check.app, name="check")
    return app


app = make_app(COMMANDS)


def main() -> None:
    """Run the command line. Our own errors are printed as one line, with status 2."""
    prepare_streams()
    move_current_folder_back()
    asked = sys.argv[1] if len(sys.argv) > 1 else ""
    # To build all commands takes longer than to run most of them.
    chosen = make_app({asked: COMMANDS[asked]}) if asked in COMMANDS else app
    try:
        status = chosen(prog_name="groupwise", standalone_mode=False)
    except GroupwiseError as error:
        print_error(str(error))
        status = 2
    except typer.Abort:
        status = 1
    except Exception as error:
        if not hasattr(error, "format_message"):  # typer's own errors about the command line have it
            sys.excepthook = show_traceback  # typer has set its own
            raise
        status = _print_usage(error)
    finish_streams(status if isinstance(status, int) else 0)


def _print_usage(error: Any) -> int:
    """Print an error of the command line; without arguments, typer has printed the help."""
    context = getattr(error, "ctx", None)
    if type(error).__name__ != "NoArgsIsHelpError":
        if context:
            print_line(f"{context.get_usage()}\nTry '{context.command_path} --help' for help.", to=errors())
        print_error(error.format_message())
    return int(error.exit_code)
