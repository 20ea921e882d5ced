"""`groupwise audit`: what is in recorded rollouts, and what several recipes would make of them."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from groupwise.cli.arguments import Format, MapEntries, Trust, build_algorithm, read_column_map
from groupwise.cli.screen import errors, file_progress, format_share, output, print_json, shorten
from groupwise.data.step_table import StepTable
from groupwise.data.token_table import TokenTable
from groupwise.parts.algorithm import Algorithm
from groupwise.report.audit import Audit, Census, HistoryLevel, Mover, RecipeColumn, audit_tables, gives_token_credit
from groupwise.report.audit_tokens import TokenColumn
from groupwise.report.explained_step import AGREEMENT
from groupwise.report.groups import find_underived
from groupwise.store import RolloutsChunk
from groupwise.store.formats import is_run, open_rollouts
from groupwise.store.run_folder import CONFIG
from groupwise.system.errors import ConfigError
from groupwise.training.run_reader import RunFolder

RECIPES = ("grpo", "gigpo", "hgpo")
"""Recipes that are compared unless others are named; the folder of a run adds the run's own."""


def audit(
    file: Annotated[Path, typer.Argument(help="Rollouts: .jsonl, .jsonl.gz or .parquet; or the folder of a run.")],
    recipe: Annotated[
        list[str] | None,
        typer.Option(
            help="A recipe by name, with options as name:key=value,..., or a TOML file. Repeat to compare; one that "
            "gives tokens credit is compared token by token, where the file has what it reads."
        ),
    ] = None,
    depth: Annotated[int, typer.Option(help="How many earlier states to look at.", min=0, max=16)] = 4,
    gamma: Annotated[float, typer.Option(help="Discount of the returns that depths compare.", min=0, max=1)] = 0.95,
    format: Format = "auto",
    map_: MapEntries = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the audit as JSON.")] = False,
    trust: Trust = False,
) -> None:
    """Audit recorded rollouts: groups, histories, credit of steps and tokens under several recipes."""
    algorithms = {name: build_algorithm(name) for name in recipe or RECIPES}
    if not recipe and (file / CONFIG).is_file():
        algorithms |= _load_own_algorithm(file)
    rollouts = open_rollouts(file, format=format, columns=read_column_map(map_))
    with file_progress(rollouts.size, f"auditing {file.name}") as progress:
        chunks = ChunkTables(rollouts.chunks(progress=progress, keeps_tokens=gives_token_credit(algorithms)))
        comparison = JournalComparison(file, algorithms) if is_run(file) else None
        tables = chunks if comparison is None else comparison.compare(chunks)
        result = audit_tables(
            tables,
            algorithms,
            depth=depth,
            gamma=gamma,
            read_tokens=chunks.read_tokens,
        )
    if comparison is not None and (words := comparison.describe()):
        errors().print(escape(words), highlight=False, soft_wrap=True)
    if as_json:
        print_json(result.as_json())
    else:
        _print_audit(result, file)


class ChunkTables:
    """The chunks of a file as tables, one at a time, with the tokens of the one that was handed over last."""

    def __init__(self, chunks: Iterable[RolloutsChunk]) -> None:
        self._chunks = chunks
        self._last: RolloutsChunk | None = None

    def __iter__(self) -> Iterator[StepTable]:
        for chunk in self._chunks:
            self._last = chunk
            yield chunk.table()

    def read_tokens(self, table: StepTable) -> TokenTable:
        """The sampled tokens of the last table; none where the chunks do not keep them."""
        assert self._last is not None, "a table was handed over"
        return TokenTable.from_rows(table, self._last.tokens)


def _load_own_algorithm(folder: Path) -> dict[str, Algorithm]:
    """A run's own algorithm; where it cannot be had, the others are compared without it."""
    from groupwise.training.config.run_file import load_algorithm  # a run's whole schema; not every audit needs it

    try:
        return {OWN: load_algorithm(folder / CONFIG)}
    except ConfigError as error:
        errors().print(f"without {OWN} recipe: {escape(str(error))}", highlight=False, soft_wrap=True)
        return {}


def _describe_flaws(census: Census) -> str:
    """How many steps had a flaw, as far as the file tells."""
    apart = {"malformed": census.malformed_steps, "refused": census.refused_steps}
    known = [f"{count} {flaw}" for flaw, count in apart.items() if count is not None]
    if not known and census.invalid_steps is not None:
        known = [f"{census.invalid_steps} invalid"]
    return f"{' and '.join(known)} steps" if known else "it does not say which steps were malformed or refused"


def _print_audit(result: Audit, file: Path) -> None:
    console, census = output(), result.census
    console.print(f"[bold]Audit of {escape(str(file))}[/]", highlight=False)
    console.print(
        f"{census.tasks} tasks, {census.attempts} attempts, {census.steps} steps; "
        f"mean return {census.mean_return:.4g}; {census.lone_tasks} tasks with one attempt, "
        f"{census.equal_tasks} with equal returns; {_describe_flaws(census)}\n"
    )
    console.print(_make_levels_table(result.levels, census.steps), "")
    console.print(_make_recipes_table(result.recipes, census.steps), "")
    if result.token_recipes is not None:
        console.print(_make_tokens_table(result.token_recipes), "")
    if len(result.recipes) > 1:
        first, last = result.recipes[0].name, result.recipes[-1].name
        _print_movers(console, f"Steps that gain most from {escape(first)} to {escape(last)}", result.gains)
        _print_movers(console, f"Steps that lose most from {escape(first)} to {escape(last)}", result.losses)
        _print_token_movers(console, f"Tokens that change most from {escape(first)} to {escape(last)}", result)
    console.print("[bold]Findings[/]")
    for number, finding in enumerate(result.findings, start=1):
        console.print(f" {number}. {escape(finding)}", highlight=False)


def _make_levels_table(levels: list[HistoryLevel], steps: int) -> Table:
    table = Table(title="Groups by depth of history (shares of all steps)", title_justify="left", box=None)
    headings = ("depth", "groups", "mean size", "compared", "own only", "alone", "too early", "all equal")
    for heading in (*headings, "hide histories", "baseline moves", "sign flips"):
        table.add_column(heading, justify="right")
    for level in levels:
        table.add_row(
            str(level.depth),
            str(level.groups),
            f"{level.mean_size:.1f}",
            format_share(level.compared_steps, steps),
            format_share(level.own_rollout_steps, level.compared_steps),
            format_share(level.alone_steps, steps),
            format_share(level.too_early_steps, steps),
            format_share(level.equal_steps, steps),
            format_share(level.split_steps, steps) if level.depth else "",
            f"{level.baseline_shift:.3g} ({level.relative_shift:.2f} sd)" if level.depth else "",
            format_share(level.sign_flips, level.compared_at_both) if level.depth else "",
        )
    return table


def _make_recipes_table(recipes: list[RecipeColumn], steps: int) -> Table:
    table = Table(title="Credit under each recipe", title_justify="left", box=None)
    table.add_column("recipe", style="bold")
    for heading in ("compared", "own\nonly", "exactly 0", "mean |A|", "max |A|"):
        table.add_column(heading, justify="right")
    for other in recipes:
        table.add_column(f"flips / r against\n{escape(other.name)}", justify="right")
    for column in recipes:
        own = column.own_rollout_steps
        against = [_compare_columns(column, other) for other in recipes]
        table.add_row(
            escape(column.name),
            format_share(column.compared_steps, steps),
            "unknown" if own is None else format_share(own, column.compared_steps),
            format_share(column.silent_steps, steps),
            f"{column.mean_size:.3f}",
            f"{column.largest:.3f}",
            *against,
        )
    return table


def _make_tokens_table(recipes: list[TokenColumn]) -> Table:
    num = f"{recipes[0].tokens:,}"
    title = f"Credit of {num} sampled tokens under each recipe (recipes without token credit: that of their step)"
    table = Table(title=title, title_justify="left", box=None)
    table.add_column("recipe", style="bold")
    for heading in ("train", "exactly 0", "mean |A|", "max |A|", "inside steps"):
        table.add_column(heading, justify="right")
    for other in recipes:
        table.add_column(f"flips / r against {escape(other.name)}", justify="right")
    for column in recipes:
        table.add_row(
            escape(column.name),
            format_share(column.trained_tokens, column.tokens),
            format_share(column.silent_tokens, column.tokens),
            f"{column.mean_size:.3f}",
            f"{column.largest:.3f}",
            "none" if column.inside_share is None else f"{100 * column.inside_share:.1f} %",
            *(_compare_columns(column, other) for other in recipes),
        )
    return table


def _compare_columns(column: RecipeColumn | TokenColumn, other: RecipeColumn | TokenColumn) -> str:
    if other.name == column.name:
        return "-"
    correlation = column.correlation[other.name]
    flips = format_share(column.flips[other.name], column.both_signed[other.name])
    return f"{flips} / {'none' if correlation is None else format(correlation, '.2f')}"


def _print_movers(console: Console, title: str, movers: list[Mover]) -> None:
    if not movers:
        return
    table = Table(title=title, title_justify="left", box=None)
    for heading in ("task", "attempt", "step", "before", "after", "state", "action"):
        table.add_column(heading, justify="right" if heading in ("before", "after", "step") else "left")
    for mover in movers:
        table.add_row(
            escape(shorten(str(mover.task), 34)),
            escape(str(mover.attempt)),
            str(mover.index),
            f"{mover.before:+.3f}",
            f"{mover.after:+.3f}",
            escape(shorten(mover.state, 44)),
            escape(shorten(mover.action, 30)),
        )
    console.print(table, "")


def _print_token_movers(console: Console, title: str, result: Audit) -> None:
    if not result.token_movers:
        return
    table = Table(title=title, title_justify="left", box=None)
    for heading in ("task", "attempt", "step", "token", "id", "before", "after"):
        table.add_column(heading, justify="left" if heading in ("task", "attempt") else "right")
    for mover in result.token_movers:
        place = (str(mover.index), str(mover.position), str(mover.token))
        names = escape(shorten(str(mover.task), 34)), escape(str(mover.attempt))
        table.add_row(*names, *place, f"{mover.before:+.3f}", f"{mover.after:+.3f}")
    console.print(table, "")


# Whether an audit of a run gives its own recipe the credit that the run trained on.

OWN = "this run's own"
READ_APART = (
    "an audit reads all updates as one file of recorded attempts, without those that were recalled; "
    "`groupwise explain` derives a step as it trained"
)

_Name = tuple[str, Hashable, int]
"""A step of a run: TASK@UPDATE, attempt, index."""


class JournalComparison:
    """Holds the credit of a run's own recipe, as an audit computes it, against the journal's."""

    def __init__(self, path: Path, algorithms: Mapping[str, Algorithm]) -> None:
        with RunFolder(path) as folder:
            own = folder.find_algorithm()
            is_compared = own is not None and any(other.config() == own.config() for other in algorithms.values())
            self._own = own if is_compared else None
            self._underived = find_underived(folder) if is_compared else {}
            self._recorded = _read_credit(folder) if is_compared else {}
        self._differing: set[int] = set(self._underived)

    def compare(self, tables: Iterable[StepTable]) -> Iterator[StepTable]:
        """Pass the tables on, and note the updates in which the credit is another than the journal's."""
        for table in tables:
            if self._own is not None:
                self._note_differing(table, self._own)
            yield table

    def describe(self) -> str:
        """In which updates the run's own recipe gives other credit than it trained on, and why; empty = in none."""
        if not self._differing:
            return ""
        first = min(self._differing)
        reason = self._underived[first].reason if first in self._underived else READ_APART
        num = len(self._differing)
        return (
            f"{OWN} recipe does not give the credit that the journal holds in {num} update{'s' if num > 1 else ''}, "
            f"the first of them {first} ({reason}): below stands what it would give the recorded attempts by themselves"
        )

    def _note_differing(self, table: StepTable, own: Algorithm) -> None:
        values = own.credit(table).trace.values
        recorded = np.array([self._recorded.get(_name_step(table, step), np.nan) for step in range(len(table))])
        for step in np.flatnonzero(~np.isclose(values, recorded, rtol=AGREEMENT, atol=AGREEMENT)).tolist():
            self._differing.add(int(_name_step(table, step)[0].rpartition("@")[2]))


def _read_credit(folder: RunFolder) -> dict[_Name, float]:
    return {
        (f"{record['task']}@{number}", record["attempt"], row["index"]): value
        for number in folder.updates
        for record in folder.journal.trajectories(number)
        for row, value in zip(record["steps"], record["credit"], strict=True)
    }


def _name_step(table: StepTable, step: int) -> _Name:
    task, attempt = table.task_ids[table.task[step]], table.attempt_ids[table.attempt[step]]
    return str(task), attempt, int(table.index[step])
