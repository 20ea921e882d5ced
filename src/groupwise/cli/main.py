"""The `groupwise` command: collects the commands, and prints our errors as one line with status 2."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Annotated, Any

import typer

from groupwise import __version__
from groupwise.cli.arguments import COMMANDS_THAT_RUN, flag, move_current_folder_back, set_rights
from groupwise.cli.help import Command, CommandGroup
from groupwise.cli.screen import errors, finish_streams, prepare_streams, print_error, print_line, show_traceback
from groupwise.system.errors import GroupwiseError

SECTIONS = {
    "First steps": ("demo", "doctor", "methods"),
    "Train": ("train", "sweep", "warmup"),
    "Before training": ("preview", "check", "tasks", "schema"),
    "Look at results": ("report", "inspect", "evaluate", "explain", "audit", "lab", "export"),
    "Servers": ("serve", "launch"),
}
"""The commands by section of the help; each is the function, or the app, of that name in its module."""
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
        for name in commands:
            if only not in ("", name):
                continue
            command = getattr(import_module(f"groupwise.cli.{name}"), name)
            if isinstance(command, typer.Typer):
                app.add_typer(command, name=name, rich_help_panel=title)
            else:
                app.command(name, cls=Command, rich_help_panel=title)(command)
    return app


def main() -> None:
    """Run the command line. Our own errors are printed as one line, with status 2."""
    prepare_streams()
    move_current_folder_back()
    asked = sys.argv[1] if len(sys.argv) > 1 else ""
    app = make_app(only=asked if any(asked in commands for commands in SECTIONS.values()) else "")
    try:
        status = app(prog_name="groupwise", standalone_mode=False)
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
