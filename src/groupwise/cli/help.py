"""The output of `--help`: usage, description, arguments, options and commands, in plain tables.

Typer's own help shows Python types (`<path>`, `<bool>`), and differs from version to version.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from enum import Enum
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text
from typer.core import TyperCommand, TyperGroup

from groupwise.cli.screen import output, print_line


class Command(TyperCommand):
    """A command with our help."""

    def get_usage(self, ctx: Any) -> str:
        return f"Usage: {ctx.command_path} {' '.join(name_usage(self))}"

    def format_help(self, ctx: Any, formatter: Any) -> None:
        _print_help(self, ctx)


class CommandGroup(TyperGroup):
    """A command with commands, and our help."""

    def get_usage(self, ctx: Any) -> str:
        return f"Usage: {ctx.command_path} COMMAND [OPTIONS]"

    def format_help(self, ctx: Any, formatter: Any) -> None:
        _print_help(self, ctx)


def name_usage(command: Any) -> Iterator[str]:
    """Arguments and required options, as they are typed."""
    arguments, options = split_parameters(command)
    for argument in arguments:
        yield argument.metavar if argument.required else f"[{argument.metavar}]"
    for option in options:
        if option.required:
            yield name_option(option)
    yield "[OPTIONS]"


def split_parameters(command: Any) -> tuple[list[Any], list[Any]]:
    arguments = [parameter for parameter in command.params if parameter.param_type_name == "argument"]
    return arguments, [parameter for parameter in command.params if parameter.param_type_name == "option"]


def name_option(option: Any) -> str:
    """An option with the name of its value; flags have none."""
    return option.opts[0] if option.is_flag else f"{option.opts[0]} {option.metavar}"


def describe_parameter(parameter: Any) -> str:
    """The help of an argument or an option, with its default."""
    default = parameter.default
    if parameter.param_type_name == "option" and parameter.required:
        return _add(parameter.help, "required")
    if parameter.param_type_name == "argument" or parameter.is_flag or default is None or callable(default):
        return str(parameter.help)
    shown = default.value if isinstance(default, Enum) else default
    shown = f"{shown:g}" if isinstance(shown, float) else str(shown)
    return _add(parameter.help, f"default: {shown}") if shown else str(parameter.help)


def _add(text: str, more: str) -> str:
    return f"{text.removesuffix('.')}; {more}."


def summarize(command: Any) -> str:
    """The first sentence of a command's help."""
    return str(command.help).split("\n\n")[0].partition(". ")[0].removesuffix(".")


def _print_help(command: Any, context: Any) -> None:
    console = output()
    print_line(f"{command.get_usage(context)}\n")
    console.print(Text("\n\n".join(" ".join(part.split()) for part in command.help.split("\n\n"))))
    if isinstance(command, TyperGroup):
        sections: dict[str, list[tuple[Any, str]]] = {}
        for inner in command.commands.values():
            title = getattr(inner, "rich_help_panel", None) or "Commands"
            sections.setdefault(title, []).append((inner.name, summarize(inner)))
        _print_sections(console, sections)
    arguments, options = split_parameters(command)
    _print_sections(
        console,
        {
            "Arguments": [(argument.metavar, describe_parameter(argument)) for argument in arguments],
            "Options": [(name_option(option), describe_parameter(option)) for option in options],
        },
    )


def _print_sections(console: Console, sections: Mapping[str, Sequence[tuple[str, str]]]) -> None:
    width = max((len(name) for rows in sections.values() for name, _ in rows), default=0)
    for title, rows in sections.items():
        if rows:
            table = Table(box=None, show_header=False)
            table.add_column(style="cyan", min_width=width, no_wrap=True)
            for name, text in rows:
                table.add_row(Text(name), Text(text))
            console.print("", Text(title, style="bold"), table, sep="\n")
