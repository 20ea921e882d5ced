"""What became of rules, on the screen."""

from __future__ import annotations

from collections.abc import Sequence

from rich.markup import escape

from groupwise.cli.screen import output
from groupwise.core.rules import RuleResult

VERDICTS = {"kept": ("ok", "green"), "broken": ("broken", "red"), "not tested": ("not tested", "dim")}
"""How each verdict on a rule is called and coloured."""


def print_rules(name: str, results: Sequence[RuleResult]) -> None:
    """A line for each rule that something was put to, and the reason under those that are broken."""
    console = output()
    broken = sum(result.status == "broken" for result in results)
    untested = sum(result.status == "not tested" for result in results)
    counts = f"{len(results)} rules, {broken} broken, {untested} not tested"
    console.print(f"[bold]{escape(name)}[/]: {counts}", highlight=False)
    for result in results:
        word, colour = VERDICTS[result.status]
        console.print(f" [{colour}]{word:<10}[/] {result.rule}: {escape(result.found)}", highlight=False)
        if result.status == "broken":
            console.print(f"{'':<12}[dim]Why it matters: {escape(result.why)}[/]", highlight=False)
