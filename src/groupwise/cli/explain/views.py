"""How `explain` and `inspect --why` print the way a step came by its credit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict

from rich.markup import escape
from rich.tree import Tree

from groupwise.cli.terminal.screen import output, shorten
from groupwise.core.step_table import StepTable
from groupwise.reports.explain.step import Explanation, Member

AGREEMENT = 1e-9
MOST_MEMBERS = 12


def print_explanation(table: StepTable, found: Explanation, gap: float, *, recipe: str, position: int) -> None:
    """Print how a step came by its credit, and whether a second derivation agrees."""
    console = output()
    console.print(f"[bold]{escape(table.where(position))}[/] under [bold]{escape(recipe)}[/]", highlight=False)
    if table.state[position] >= 0:
        console.print(f"state  {escape(shorten(str(table.state_keys[table.state[position]]), 110))}", highlight=False)
    if "action" in table.extra:
        console.print(f"action {escape(shorten(str(table.extra['action'][position]), 110))}", highlight=False)
    console.print(_tree(found))
    verdict = "agrees" if gap <= AGREEMENT else "[bold red]does not agree[/]"
    console.print(
        f"credit [bold]{found.value:+.9f}[/]; derived again by hand from the members, it {verdict} (gap {gap:.1e})"
    )
    for words in found.list_not_derived():
        console.print(f"not derived again, but taken as it was computed: {escape(words)}", highlight=False)


def print_channels(channels: Mapping[str, Explanation]) -> None:
    """Print how a step came by its credit in each further channel."""
    for name, found in channels.items():
        output().print(f"channel [bold]{escape(name)}[/]: credit [bold]{found.value:+.9f}[/]", highlight=False)
        output().print(_tree(found))


def channels_as_json(channels: Mapping[str, Explanation]) -> dict[str, object]:
    """The further channels for a JSON answer; nothing where there are none."""
    return {"channels": {name: asdict(found) for name, found in channels.items()}} if channels else {}


def _tree(found: Explanation) -> Tree:
    tree = Tree(f"[bold]{escape(found.what)}[/]: {escape(found.formula)}", highlight=False)
    for member in found.members[:MOST_MEMBERS]:
        tree.add(_member(member))
    if len(found.members) > MOST_MEMBERS:
        tree.add(f"… and {len(found.members) - MOST_MEMBERS} more members")
    for weight, inner in found.inner:
        branch = _tree(inner)
        branch.label = f"of {branch.label}" if len(found.inner) == 1 else f"weight {weight:.4g} x {branch.label}"
        tree.add(branch)
    return tree


def _member(member: Member) -> str:
    if member.attempt is None:
        return f"made up by the method: {member.value:.6g}"
    if member.index is None:
        name, own = f"attempt {member.attempt}, mean of {member.num_steps} steps: {member.value:.6g}", "this attempt"
    else:
        name, own = f"attempt {member.attempt}, step {member.index}: {member.value:.6g}", "this step"
    return f"[bold green]{escape(name)} ({own})[/]" if member.is_self else escape(name)
