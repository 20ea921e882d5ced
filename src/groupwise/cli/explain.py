"""`groupwise explain`: how one step came by its credit, derived again from the file."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape
from rich.tree import Tree

from groupwise.cli.algorithms import algorithm_named
from groupwise.cli.explain_training import more_as_json, print_dropped, print_token
from groupwise.cli.screen import file_progress, output, print_json, shorten
from groupwise.cli.trust import Trust
from groupwise.core.errors import ConfigError, RecordError, listed, nearest
from groupwise.core.rollouts import Rollouts, RolloutsFile, Row
from groupwise.core.step_table import StepTable
from groupwise.core.token_table import TokenTable
from groupwise.integrations.rollouts import open_rollouts
from groupwise.reports.explain import Explanation, Member, explain_channels, find_step
from groupwise.reports.explain import explain as run_explain
from groupwise.reports.explain_token import explain_token

AGREEMENT = 1e-9
MOST_MEMBERS = 12


def explain(
    file: Annotated[Path, typer.Argument(help="Rollouts: .jsonl, .jsonl.gz or .parquet.")],
    attempt: Annotated[str, typer.Option(help="Id of the attempt.")],
    step: Annotated[int, typer.Option(help="Index of the step.", min=0)],
    task: Annotated[
        str | None, typer.Option(help="Id of the task (or group); may be left out if the attempt's id is unique.")
    ] = None,
    recipe: Annotated[str, typer.Option(help="A recipe by name, name:key=value,..., or a TOML file.")] = "hgpo",
    format: Annotated[
        str, typer.Option(help="auto, groupwise, verl_agent (verl's own dumps too) or verifiers.")
    ] = "auto",
    token: Annotated[
        int | None, typer.Option(help="Explain the credit of this token of the response too, from 0.", min=0)
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the explanation as JSON.")] = False,
    trust: Trust = False,
) -> None:
    """Show the groups, members, baseline, scale and weights behind one step's credit, and derive it again by hand."""
    algorithm = algorithm_named(recipe)
    rollouts = open_rollouts(file, format=format)
    with file_progress(rollouts.size, f"reading {file.name}") as progress:
        batchwide = any(inner.mixes_tasks for inner in algorithm.parts())
        part, scope = _find(rollouts.parts(progress=progress), task, attempt, batchwide=batchwide)
    table = algorithm.estimator_table(part.table())
    credit = algorithm.advantage(table)
    found = run_explain(table, credit, task=scope, attempt=attempt, index=step)
    channels = explain_channels(table, algorithm, task=scope, attempt=attempt, index=step)
    position = find_step(table, task=scope, attempt=attempt, index=step)
    of_token = None
    if token is not None:
        tokens = TokenTable.from_rows(table, whole_rows(rollouts, part))
        of_token = explain_token(algorithm, table, credit, tokens, step=position, position=token)
    gaps = [explanation.largest_gap() for explanation in (found, *channels.values())]
    gap = max(*gaps, of_token.gap if of_token else 0.0)
    if as_json:
        more = channels_as_json(channels) | more_as_json(algorithm, table, credit, of_token)
        print_json(asdict(found) | {"largest_gap": gap} | more)
    else:
        print_explanation(table, found, gap, recipe=recipe, position=position)
        print_channels(channels)
        print_token(of_token)
        print_dropped(algorithm, table, credit, position)
    if gap > AGREEMENT:
        raise typer.Exit(1)


def whole_rows(rollouts: RolloutsFile, part: Rollouts) -> list[Row]:
    """The rows of a part as the file holds them, with their tokens, in the order of the part."""
    keys = ("task", "attempt", "index", "segment")
    wanted = [tuple(part.columns[key][row] if key in part.columns else 0 for key in keys) for row in range(len(part))]
    is_wanted = set(wanted)
    found: dict[tuple[str | int, ...], Row] = {}
    for row in rollouts.rows():
        key = (row.get("group", row["task"]), row["attempt"], row["index"], row.get("segment", 0))
        if key in is_wanted:
            found[key] = row
    return [found[key] for key in wanted]


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
    for words in found.taken_on_trust():
        console.print(f"not derived again, but taken as it was computed: {escape(words)}", highlight=False)


def print_channels(channels: Mapping[str, Explanation]) -> None:
    """Print how a step came by its credit in each further channel."""
    for name, found in channels.items():
        output().print(f"channel [bold]{escape(name)}[/]: credit [bold]{found.value:+.9f}[/]", highlight=False)
        output().print(_tree(found))


def channels_as_json(channels: Mapping[str, Explanation]) -> dict[str, object]:
    """The further channels for a JSON answer; nothing where there are none."""
    return {"channels": {name: asdict(found) for name, found in channels.items()}} if channels else {}


def _find(parts: Iterable[Rollouts], task: str | None, attempt: str, *, batchwide: bool) -> tuple[Rollouts, str | int]:
    """The part and the group that an attempt is in; holds that part and the one being read, no more."""
    found: tuple[Rollouts, str | int] | None = None
    scopes: set[str] = set()
    several: set[str] = set()
    names: set[str] = set()
    for number, part in enumerate(parts):
        if number and batchwide:
            raise ConfigError("the recipe compares across tasks and the file is too large to hold; use a smaller file")
        pairs = set(zip(part.columns["task"], part.columns["attempt"], strict=True))
        scopes |= {str(scope) for scope, _ in pairs}
        names |= {str(name) for scope, name in pairs if task in (None, str(scope))}
        for scope, name in pairs:
            if str(name) == attempt and task in (None, str(scope)):
                found = (part, scope)
                several.add(str(scope))
    if task is not None and task not in scopes:
        raise RecordError(f"there is no task {task!r}; {nearest(task, scopes)}")
    if found is None:
        place = "" if task is None else f" at task {task!r}"
        raise RecordError(f"there is no attempt {attempt!r}{place}; {nearest(attempt, names)}")
    if len(several) > 1:
        raise RecordError(f"attempt {attempt!r} exists in {len(several)} tasks; add --task, one of: {listed(several)}")
    return found


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
