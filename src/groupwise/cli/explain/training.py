"""What `explain` and `inspect --why` say beside a step's credit: that of a token, and which steps do not train."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from rich.markup import escape

from groupwise.cli.terminal.screen import output
from groupwise.core.algorithm import Algorithm
from groupwise.core.credit import Credit
from groupwise.core.step_table import StepTable
from groupwise.reports.explain.dropped_steps import find_filters_that_drop, find_steps_dropped_by_credit
from groupwise.reports.explain.token import TokenExplanation

MAX_STEPS = 8
"""Dropped steps that are named; more are counted."""


def print_token(found: TokenExplanation | None) -> None:
    """Print how a token comes by its credit."""
    if found is None:
        return
    console = output()
    known = [
        f"{name} {value:.6g}"
        for name, value in (("log-prob", found.logp), ("entropy", found.entropy))
        if value is not None
    ]
    about = f" ({', '.join(known)})" if known else ""
    console.print(f"[bold]token {found.position}[/], id {found.token}{about}: {escape(found.what)}", highlight=False)
    for member in found.members:
        place = f"attempt {member.attempt}, step {member.index}, token {member.position}: {member.value:.6g}"
        console.print(f"  {escape(place)}", highlight=False)
    if found.value is None:
        console.print(escape(found.formula), highlight=False)
        return
    console.print(
        f"{escape(found.formula)}; credit of the token [bold]{found.value:+.9f}[/], by hand {found.by_hand:+.9f}",
        highlight=False,
    )
    if found.not_derived:
        console.print(f"not derived again, but taken as it was computed: {escape(found.not_derived)}", highlight=False)


def print_dropped(algorithm: Algorithm, table: StepTable, credit: Credit, step: int) -> None:
    """Print which filters keep the step from training, and which steps were dropped by their credit."""
    console = output()
    dropping = find_filters_that_drop(algorithm, table, credit, step)
    if dropping:
        console.print(f"it does not train: {escape(', '.join(dropping))} drops it", highlight=False)
    dropped = find_steps_dropped_by_credit(algorithm, table, credit)
    if dropped:
        named = [f"{one.task}, attempt {one.attempt}, step {one.index} ({one.credit:+.6g})" for one in dropped]
        more = f"; and {len(dropped) - MAX_STEPS} more" if len(dropped) > MAX_STEPS else ""
        console.print(f"dropped by their credit: {escape('; '.join(named[:MAX_STEPS]))}{more}", highlight=False)


def more_as_json(
    algorithm: Algorithm, table: StepTable, credit: Credit, token: TokenExplanation | None
) -> dict[str, Any]:
    """The same as plain data; nothing where there is nothing to say."""
    found: dict[str, Any] = {} if token is None else {"token": asdict(token)}
    if algorithm.credit_filters:
        found["dropped_by_credit"] = [asdict(one) for one in find_steps_dropped_by_credit(algorithm, table, credit)]
    return found
