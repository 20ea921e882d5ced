"""What `explain` and `inspect --why` print: how a step and a token came by their credit, which steps do not train."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from rich.markup import escape
from rich.text import Text
from rich.tree import Tree

from groupwise.cli.terminal.screen import escape_recorded, output, shorten
from groupwise.core.algorithm import Algorithm
from groupwise.core.credit import Credit
from groupwise.core.step_table import StepTable
from groupwise.reports.explain.dropped_steps import find_filters_that_drop, find_steps_dropped_by_credit
from groupwise.reports.explain.pairs import ExplainedPair
from groupwise.reports.explain.step import Explanation, Member
from groupwise.reports.explain.token import TokenExplanation
from groupwise.reports.run.derived_credit import AGREEMENT
from groupwise.reports.run.explain_step import RunStepExplanation

MAX_MEMBERS = 12
"""Members of a group that are named; more are counted."""
MAX_DROPPED = 8
"""Dropped steps that are named; more are counted."""


def print_explanation(
    table: StepTable, explanation: Explanation, gap: float | None, *, recipe: str, position: int
) -> None:
    """Print how a step came by its credit, and whether a second derivation agrees, or why there is none."""
    console = output()
    console.print(f"[bold]{escape(table.describe_step(position))}[/] under [bold]{escape(recipe)}[/]", highlight=False)
    if table.state[position] >= 0:
        console.print(f"state  {escape(shorten(str(table.state_keys[table.state[position]]), 110))}", highlight=False)
    if "action" in table.extra:
        console.print(f"action {escape(shorten(str(table.extra['action'][position]), 110))}", highlight=False)
    console.print(_draw_tree(explanation))
    credit, not_derived = f"credit [bold]{explanation.value:+.9f}[/]", explanation.list_not_derived()
    if explanation.by_hand is None or gap is None:
        console.print(f"{credit}; not derived again by hand", highlight=False)
    else:
        verdict = "agrees" if gap <= AGREEMENT else "[bold red]does not agree[/]"
        how = "in part" if not_derived else "from the members"
        console.print(f"{credit}; derived again by hand {how}, it {verdict} (gap {gap:.1e})")
    _print_not_derived(not_derived)
    if explanation.own_rollout_only:
        console.print("it is compared only with steps of its own rollout: no other rollout is in its groups")


def _print_not_derived(reasons: Sequence[str]) -> None:
    """Print what was not derived a second time, and why."""
    for reason in reasons:
        output().print(
            f"not derived again, but taken as it was computed: {escape(reason)}", highlight=False, soft_wrap=True
        )


def print_recorded(step: RunStepExplanation) -> None:
    """Print whether the journal holds the number that was explained, and what stateful parts knew of its task."""
    gap = abs(step.explanation.value - step.recorded)
    same = step.agrees or gap <= 1e-9 * max(1.0, abs(step.recorded))
    words = "the same number" if same else "[bold red]another number[/]; the credit was made from more than these rows"
    output().print(f"the journal holds {step.recorded:+.9f}: {words}", highlight=False)
    for known in step.remembered:
        name, path = escape(known.column), escape(known.path)
        output().print(f"{name} {known.value:.9g}: what {path} remembered when the update began", highlight=False)


def print_channels(channels: Mapping[str, Explanation]) -> None:
    """Print how a step came by its credit in each further channel."""
    for name, explanation in channels.items():
        output().print(f"channel [bold]{escape(name)}[/]: credit [bold]{explanation.value:+.9f}[/]", highlight=False)
        output().print(_draw_tree(explanation))
        _print_not_derived(explanation.list_not_derived())


def channels_as_json(channels: Mapping[str, Explanation]) -> dict[str, object]:
    """The further channels for a JSON answer; nothing where there are none."""
    return {"channels": {name: asdict(explanation) for name, explanation in channels.items()}} if channels else {}


def print_token(token: TokenExplanation | None) -> None:
    """Print how a token comes by its credit."""
    if token is None:
        return
    console = output()
    known = [
        f"{name} {value:.6g}"
        for name, value in (("log-prob", token.logp), ("entropy", token.entropy))
        if value is not None
    ]
    about = f" ({', '.join(known)})" if known else ""
    console.print(f"[bold]token {token.position}[/], id {token.token}{about}: {escape(token.what)}", highlight=False)
    if token.neighbours:
        console.print(_place_token(token))
    for line in token.lines:
        console.print(f"  {escape(line)}", highlight=False, soft_wrap=True)
    for member in token.members[:MAX_MEMBERS]:
        place = f"attempt {member.attempt}, step {member.index}, token {member.position}: {member.value:.6g}"
        console.print(f"  {escape(place)}", highlight=False)
    if len(token.members) > MAX_MEMBERS:
        console.print(f"  … and {len(token.members) - MAX_MEMBERS} more tokens", highlight=False)
    if token.value is None:
        console.print(escape(token.formula), highlight=False)
        return
    by_hand = "not derived again by hand" if token.not_derived else "that of its step"
    if token.by_hand is not None:
        by_hand = f"by hand {token.by_hand:+.9f}"
    console.print(
        f"{escape(token.formula)}; credit of the token [bold]{token.value:+.9f}[/], {by_hand}", highlight=False
    )
    _print_not_derived([token.not_derived] if token.not_derived else [])


def print_pairs(algorithm: Algorithm, pairs: Sequence[ExplainedPair]) -> None:
    """Print the pairs that a step is in, where the loss reads pairs."""
    if algorithm.pairing is not None and not pairs:
        output().print("the loss reads pairs, and this step is in none of them", highlight=False)
    for pair in pairs[:MAX_MEMBERS]:
        output().print(f"pair: {escape(pair.describe())}", highlight=False, soft_wrap=True)
    if len(pairs) > MAX_MEMBERS:
        output().print(f"… and {len(pairs) - MAX_MEMBERS} more pairs", highlight=False)


def _place_token(token: TokenExplanation) -> Text:
    """The token among its neighbours: texts, or ids where nothing here can tell; itself between angle marks."""
    pieces: list[tuple[str, str]] = []
    for near in token.neighbours:
        is_self = near.position == token.position
        text = f"{near.token}" if near.text is None else escape_recorded(near.text)
        shown = f"»{text.strip()}«" if is_self else text
        space = " " if near.text is None or (is_self and text[:1].isspace()) else ""
        pieces.append((f"{space}{shown}", "bold" if is_self else "dim"))
    first, last = token.neighbours[0], token.neighbours[-1]
    begins = "… " if first.position else ""
    return Text.assemble("  ", begins, *pieces, f"   (tokens {first.position} to {last.position})")


def print_dropped(algorithm: Algorithm, table: StepTable, credit: Credit, step: int) -> None:
    """Print which filters keep the step from training, and which steps were dropped by their credit."""
    console = output()
    dropping = find_filters_that_drop(algorithm, table, credit, step)
    if dropping:
        console.print(f"it does not train: {escape(', '.join(dropping))} drops it", highlight=False)
    dropped = find_steps_dropped_by_credit(algorithm, table, credit)
    if dropped:
        named = [f"{step.task}, attempt {step.attempt}, step {step.index} ({step.credit:+.6g})" for step in dropped]
        more = f"; and {len(dropped) - MAX_DROPPED} more" if len(dropped) > MAX_DROPPED else ""
        console.print(f"dropped by their credit: {escape('; '.join(named[:MAX_DROPPED]))}{more}", highlight=False)


def extras_as_json(
    algorithm: Algorithm,
    table: StepTable,
    credit: Credit,
    token: TokenExplanation | None,
    pairs: Sequence[ExplainedPair],
) -> dict[str, Any]:
    """The token's credit, pairs and dropped steps as plain data; nothing where there is nothing to say."""
    data: dict[str, Any] = {} if token is None else {"token": asdict(token)}
    if algorithm.pairing is not None:
        data["pairs"] = [asdict(pair) for pair in pairs]
    if algorithm.credit_filters:
        data["dropped_by_credit"] = [asdict(step) for step in find_steps_dropped_by_credit(algorithm, table, credit)]
    return data


def _draw_tree(explanation: Explanation) -> Tree:
    tree = Tree(f"[bold]{escape(explanation.what)}[/]: {escape(explanation.formula)}", highlight=False)
    for member in explanation.members[:MAX_MEMBERS]:
        tree.add(_describe_member(member))
    if len(explanation.members) > MAX_MEMBERS:
        tree.add(f"… and {len(explanation.members) - MAX_MEMBERS} more members")
    if explanation.own_rollout_only and explanation.members:
        tree.add("no other rollout is in this group: it holds only steps of this rollout")
    for weight, inner in explanation.inner:
        branch = _draw_tree(inner)
        branch.label = f"of {branch.label}" if len(explanation.inner) == 1 else f"weight {weight:.4g} x {branch.label}"
        tree.add(branch)
    return tree


def _describe_member(member: Member) -> str:
    if member.attempt is None:
        return f"made up by the method: {member.value:.6g}"
    if member.index is None:
        name, own = f"attempt {member.attempt}, mean of {member.num_steps} steps: {member.value:.6g}", "this attempt"
    else:
        name, own = f"attempt {member.attempt}, step {member.index}: {member.value:.6g}", "this step"
    return f"[bold green]{escape(name)} ({own})[/]" if member.is_self else escape(name)
