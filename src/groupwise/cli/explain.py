"""`groupwise explain`: how one step came by its credit, derived again from the file."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape
from rich.text import Text
from rich.tree import Tree

from groupwise.cli.arguments import MapEntries, Trust, build_algorithm, read_column_map
from groupwise.cli.screen import escape_recorded, file_progress, output, print_finite_json, print_json, shorten
from groupwise.data.credit import Credit
from groupwise.data.step_table import StepTable
from groupwise.data.task_ids import rank_match
from groupwise.data.token_table import TokenTable
from groupwise.parts.algorithm import Algorithm
from groupwise.report.derived_credit import AGREEMENT, RunStepExplanation, explain_run_step
from groupwise.report.explain import Explanation, Member, explain_channels, explain_step, find_step
from groupwise.report.explain_pairs import ExplainedPair, choose_pairs, explain_pairs
from groupwise.report.explain_token import (
    TokenExplanation,
    add_neighbours,
    explain_token,
    find_filters_that_drop,
    find_largest_gap,
    find_steps_dropped_by_credit,
)
from groupwise.store import RolloutsChunk, RolloutsFile, Row
from groupwise.store.formats import is_run, open_rollouts
from groupwise.system.errors import ConfigError, RecordError, list_names, nearest
from groupwise.training.run_reader import RunFolder

FOR_FILES = "hgpo"
"""The recipe of a file that says nothing of its own."""


def explain(
    file: Annotated[Path, typer.Argument(help="Rollouts: .jsonl, .jsonl.gz or .parquet; or the folder of a run.")],
    attempt: Annotated[str, typer.Option(help="Id of the attempt.")],
    step: Annotated[int, typer.Option(help="Index of the step.", min=0)],
    task: Annotated[
        str | None,
        typer.Option(
            help="Id of the task or group (in a run TASK@UPDATE), or its beginning; default: the one with the attempt."
        ),
    ] = None,
    recipe: Annotated[
        str | None,
        typer.Option(
            help="A recipe by name, name:key=value,..., or a TOML file; default: hgpo, for a run what it trained with."
        ),
    ] = None,
    format: Annotated[
        str, typer.Option(help="auto, groupwise, verl_agent (verl's own dumps too) or verifiers.")
    ] = "auto",
    map_: MapEntries = None,
    token: Annotated[
        int | None, typer.Option(help="Explain the credit of this token of the response too, from 0.", min=0)
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the explanation as JSON.")] = False,
    trust: Trust = False,
) -> None:
    """Show the groups, members, baseline, scale and weights behind one step's credit, and derive it again by hand."""
    if is_run(file) and not map_:
        explain_in_run(file, task, attempt, step, recipe=recipe, token=token, as_json=as_json)
    else:
        recipe = FOR_FILES if recipe is None else recipe
        recorded = open_rollouts(file, format=format, columns=read_column_map(map_))
        _explain_in_file(recorded, task, attempt, step, recipe=recipe, token=token, as_json=as_json)


def _explain_in_file(
    rollouts: RolloutsFile,
    task: str | None,
    attempt: str,
    step: int,
    *,
    recipe: str,
    token: int | None,
    as_json: bool,
) -> None:
    """Explain a step of recorded rollouts under a recipe."""
    algorithm = build_algorithm(recipe)
    with file_progress(rollouts.size, f"reading {rollouts.path.name}") as progress:
        batchwide = any(inner.mixes_tasks for inner in algorithm.parts())
        chunk, scope = _find_chunk(rollouts.chunks(progress=progress), task, attempt, batchwide=batchwide)
    table = algorithm.estimator_table(chunk.table())
    credit = algorithm.advantage(table)
    explanation = explain_step(table, credit, task=scope, attempt=attempt, index=step)
    channels = explain_channels(table, algorithm, task=scope, attempt=attempt, index=step)
    position = find_step(table, task=scope, attempt=attempt, index=step)
    of_token = None
    if token is not None:
        tokens = TokenTable.from_rows(table, read_whole_rows(rollouts, chunk))
        of_token = explain_token(algorithm, table, credit, tokens, step=position, position=token)
        of_token = add_neighbours(of_token, tokens.response(position))
    pairs = choose_pairs(explain_pairs(algorithm, table, credit), task=scope, attempt=attempt, step=step)
    gap = find_largest_gap(explanation, channels, of_token)
    if as_json:
        more = channels_as_json(channels) | extras_as_json(algorithm, table, credit, of_token, pairs)
        print_json(asdict(explanation) | {"largest_gap": gap} | more)
    else:
        print_explanation(table, explanation, gap, recipe=recipe, position=position)
        print_channels(channels)
        print_token(of_token)
        print_pairs(algorithm, pairs)
        print_dropped(algorithm, table, credit, position)
    if (gap or 0.0) > AGREEMENT:
        raise typer.Exit(1)


def read_whole_rows(rollouts: RolloutsFile, chunk: RolloutsChunk) -> list[Row]:
    """The rows of a chunk as the file holds them, with their tokens, in the order of the chunk."""
    keys = ("task", "attempt", "index", "segment")
    wanted = [
        tuple(chunk.columns[key][row] if key in chunk.columns else 0 for key in keys) for row in range(len(chunk))
    ]
    is_wanted = set(wanted)
    rows: dict[tuple[str | int, ...], Row] = {}
    for row in rollouts.rows():
        key = (row.get("group", row["task"]), row["attempt"], row["index"], row.get("segment", 0))
        if key in is_wanted:
            rows[key] = row
    return [rows[key] for key in wanted]


def _find_chunk(
    chunks: Iterable[RolloutsChunk], task: str | None, attempt: str, *, batchwide: bool
) -> tuple[RolloutsChunk, str | int]:
    """The chunk and the group that an attempt is in; holds that chunk and the one being read, no more.

    A task that was divided into groups is found by its own id too, and both by the beginning of the id; if one of these
    ways finds a task, the later ones do not count.
    """
    place: tuple[RolloutsChunk, str | int] | None = None
    scopes: set[str] = set()
    several: set[str] = set()
    names: set[str] = set()
    best: int | None = None
    for number, chunk in enumerate(chunks):
        if number and batchwide:
            raise ConfigError("the recipe compares across tasks and the file is too large to hold; use a smaller file")
        places = set(zip(chunk.columns["task"], chunk.tasks, chunk.columns["attempt"], strict=True))
        scopes |= {str(scope) for pair in places for scope in pair[:2]}
        for scope, own, name in places:
            rank = rank_match(task, str(scope), str(own))
            if rank is None or (best is not None and rank > best):
                continue
            if rank != best:
                place, several, names, best = None, set(), set(), rank
            names.add(str(name))
            if str(name) == attempt:
                place = (chunk, scope) if place is None else place
                several.add(str(scope))
    check_unique_attempt(task, attempt, scopes=scopes, names=names, several=several)
    assert place is not None, "it is in one of them"
    return place


# How a step of a run came by its credit: one update at a time, with all that took part in it.


def explain_in_run(
    path: Path, task: str | None, attempt: str, step: int, *, recipe: str | None, token: int | None, as_json: bool
) -> None:
    """Explain a step under what trained it, with the journal's own number; or under another recipe, and say so."""
    with RunFolder(path) as folder:
        other = None if recipe is None else build_algorithm(recipe)
        own = folder.read_algorithm() if other is None else folder.find_algorithm()
        if other is not None and own is not None and other.config() == own.config():
            other = None
        number, name, attempt_number = _find_attempt(folder, task, attempt)
        explained = explain_run_step(
            folder, number=number, task=name, attempt=attempt_number, step=step, token=token, other=other
        )
        print_run_step(folder, explained, as_json=as_json, other="" if other is None else str(recipe))


def print_run_step(folder: RunFolder, step: RunStepExplanation, *, as_json: bool, other: str = "") -> None:
    """Print why a step of a run has its credit; `other` names the recipe where that is not the run's own."""
    derived = step.derived
    if as_json:
        own = {"recorded": step.recorded, "largest_gap": step.gap, "remembered": step.remembered}
        trained = {"is_what_trained": step.is_what_trained}
        more = extras_as_json(derived.algorithm, derived.table, derived.credit, step.token, step.pairs)
        print_finite_json(asdict(step.explanation) | own | trained | channels_as_json(step.channels) | more)
    else:
        recipe = other or folder.describe_method()
        print_explanation(derived.table, step.explanation, step.gap, recipe=recipe, position=step.position)
        if step.is_what_trained:
            print_recorded(step)
        else:
            output().print(
                f"this is not what trained: the run trained under [bold]{escape(folder.describe_method())}[/], and its "
                f"journal holds {step.recorded:+.9f}",
                highlight=False,
                soft_wrap=True,
            )
        print_channels(step.channels)
        print_token(step.token)
        print_pairs(derived.algorithm, step.pairs)
        print_dropped(derived.algorithm, derived.table, derived.credit, step.position)
    if not step.agrees:
        raise typer.Exit(1)


def check_unique_attempt(
    task: str | None, attempt: str, *, scopes: Collection[str], names: Collection[str], several: Collection[str]
) -> None:
    """Refuse an attempt that does not exist, or exists more than once.

    Args:
        task: what was asked for: a scope's id, or the beginning of it; None = any.
        attempt: the attempt that was asked for.
        scopes: every scope there is.
        names: the attempts of the scopes that are meant; empty = none is.
        several: the scopes that hold the attempt.
    """
    if task is not None and not names:
        raise RecordError(f"there is no task {task!r}; {nearest(task, scopes)}")
    if not several:
        place = "" if task is None else f" at task {task!r}"
        raise RecordError(f"there is no attempt {attempt!r}{place}; {nearest(attempt, names)}")
    if len(several) > 1:
        advice = "add --task" if task is None else f"{task!r} fits them all: give more of the id"
        raise RecordError(
            f"attempt {attempt!r} exists in {len(several)} tasks; {advice}, one of: {list_names(sorted(several))}"
        )


def _find_attempt(folder: RunFolder, task: str | None, attempt: str) -> tuple[int, str, int]:
    """The update, the task and the number of an attempt, by `TASK@UPDATE` or the beginning of it, or by its number."""
    past_attempts = folder.journal.past_attempts
    recalled = [row | {"number": number} for number in folder.updates for row in past_attempts.list_recalled(number)]
    known = {
        (f"{row['task']}@{row['number']}", str(row["attempt"])): (row["number"], row["task"], row["attempt"])
        for row in [*folder.attempts, *recalled]
    }
    ranks = {scope: rank_match(task, scope, place[1]) for (scope, _), place in known.items()}
    best = min((rank for rank in ranks.values() if rank is not None), default=0)
    asked = {pair: place for pair, place in known.items() if ranks[pair[0]] == best}
    holders = {scope: place for (scope, name), place in asked.items() if name == attempt}
    check_unique_attempt(task, attempt, scopes=ranks, names={name for _, name in asked}, several=holders)
    return next(iter(holders.values()))


# What `explain` and `inspect --why` print: how a step and a token came by their credit, which steps do not train.

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
