"""The `groupwise` command: collects the commands, and prints our errors as one line with status 2."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Annotated, Any

import typer

from groupwise import __version__
from groupwise.cli import (
    audit,
    check,
    demo,
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
from groupwise.cli.arguments import COMMANDS_THAT_RUN, flag, move_current_folder_back, set_rights
from groupwise.cli.help import Command, CommandGroup
from groupwise.cli.screen import errors, finish_streams, prepare_streams, print_error, print_line, show_traceback
from groupwise.system.errors import GroupwiseError

SECTIONS: dict[str, dict[str, Callable[..., None] | typer.Typer]] = {
    "First steps": {"demo": demo.demo, "doctor": doctor.doctor, "methods": methods.methods},
    "Train": {"train": train.train, "sweep": sweep.sweep, "warmup": warmup.warmup},
    "Before training": {"preview": preview.preview, "check": check.app, "tasks": tasks.tasks, "schema": schema.schema},
    "Look at results": {
        "report": report.report,
        "inspect": inspect.inspect,
        "evaluate": evaluate.evaluate,
        "explain": explain.explain,
        "audit": audit.audit,
        "lab": lab.lab,
        "export": export.export,
    },
    "Servers": {"serve": serve.serve, "launch": launch.launch},
}
"""The commands by section of the help."""
FIRST = f"""\
groupwise {__version__} trains LLM agents with group-based reinforcement learning.

  groupwise demo              train an example in a few minutes, and write a report
  groupwise train RUN.toml    train a run file of your own
  groupwise report RUN        write the result of a run as an HTML page

  groupwise doctor            check whether this machine can train
  groupwise --help            list all commands"""
"""What `groupwise` without arguments prints."""


def _print_version(asked: bool) -> None:
    if asked:
        print_line(f"groupwise {__version__}")
        raise typer.Exit


def begin(
    context: typer.Context,
    version: Annotated[
        bool, flag("--version", "Print the version and exit.", is_eager=True, callback=_print_version)
    ] = False,
) -> None:
    """Train LLM agents with group-based reinforcement learning, and inspect every advantage."""
    if context.invoked_subcommand is None:
        print_line(FIRST)
    set_rights(context, may_run=context.invoked_subcommand in COMMANDS_THAT_RUN)


def make_app(*, only: str = "") -> typer.Typer:
    """The command line with all commands, or with one: to build all takes longer than to run most of them."""
    app = typer.Typer(cls=CommandGroup, invoke_without_command=True, pretty_exceptions_enable=False, callback=begin)
    for title, commands in SECTIONS.items():
        for name, command in commands.items():
            if only not in ("", name):
                continue
            if isinstance(command, typer.Typer):
                app.add_typer(command, name=name, rich_help_panel=title)
            else:
                app.command(name, cls=Command, rich_help_panel=title)(command)
    return app


app = make_app()


def main() -> None:
    """Run the command line. Our own errors are printed as one line, with status 2."""
    prepare_streams()
    move_current_folder_back()
    asked = sys.argv[1] if len(sys.argv) > 1 else ""
    is_command = any(asked in commands for commands in SECTIONS.values())
    chosen = make_app(only=asked) if is_command else app
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
