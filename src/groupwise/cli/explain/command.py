"""`groupwise explain`: how one step came by its credit, derived again from the file."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from groupwise.cli.arguments.algorithms import build_algorithm
from groupwise.cli.arguments.column_map import MapEntries, read_column_map
from groupwise.cli.arguments.trust import Trust
from groupwise.cli.explain.step_of_run import check_unique_attempt, explain_in_run
from groupwise.cli.explain.views import (
    channels_as_json,
    extras_as_json,
    print_channels,
    print_dropped,
    print_explanation,
    print_pairs,
    print_token,
)
from groupwise.cli.terminal.screen import file_progress, print_json
from groupwise.core.errors import ConfigError
from groupwise.core.task_ids import rank_match
from groupwise.core.token_table import TokenTable
from groupwise.recordings import RolloutsChunk, RolloutsFile, Row
from groupwise.recordings.formats import is_run, open_rollouts
from groupwise.reports.explain.pairs import choose_pairs, explain_pairs
from groupwise.reports.explain.step import explain_channels, explain_step, find_step
from groupwise.reports.explain.token import add_neighbours, explain_token, find_largest_gap
from groupwise.reports.run.derived_credit import AGREEMENT

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
