"""`groupwise methods`: list the methods, or show one with its parts."""

from __future__ import annotations

from typing import Annotated, Any

from rich.markup import escape
from rich.table import Table
from rich.tree import Tree

from groupwise import methods as catalogue
from groupwise.cli.arguments import option
from groupwise.cli.screen import output


def methods(show: Annotated[str | None, option("NAME", "Show one method with its parts.", "--show")] = None) -> None:
    """List all methods, or show one with its parts."""
    if show is not None:
        _print_method(show)
        return
    table = Table(title="Methods", title_justify="left", box=None, pad_edge=False)
    table.add_column("name", style="bold")
    table.add_column("what it does")
    table.add_column("source", style="dim")
    for name in catalogue.names():
        summary = catalogue.summary(name)
        table.add_row(name, summary.sentence, summary.citation)
    output().print(table)


def _print_method(name: str) -> None:
    summary = catalogue.summary(name)
    console = output()
    console.print(f"[bold]{name}[/]")
    console.print(escape(summary.text))
    options = ", ".join(f"{key}={value!r}" for key, value in summary.options.items())
    console.print(f"\n[bold]options[/] {escape(options)}\n")
    tree = Tree("[bold]parts[/] (as a run file names them)")
    _add_branch(tree, catalogue.build(name).config())
    console.print(tree)


def _add_branch(tree: Tree, config: dict[str, Any]) -> None:
    for key, value in config.items():
        if isinstance(value, list) and value and isinstance(value[0], dict):
            _add_branch(tree, {f"{key}[{number}]": entry for number, entry in enumerate(value)})
        elif isinstance(value, dict):
            label = f"{escape(key)}: [bold cyan]{value['kind']}[/]" if "kind" in value else escape(key)
            _add_branch(tree.add(label), {name: inner for name, inner in value.items() if name != "kind"})
        else:
            tree.add(escape(f"{key} = {value!r}"))
