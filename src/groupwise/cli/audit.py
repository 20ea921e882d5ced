"""`groupwise audit`: statistics of recorded rollouts, and the advantages that several methods give them.

With `--state`: what several state rules would compare in recorded sessions of agents.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from groupwise.cli.arguments import Format, MapEntries, Trust, argument, build_algorithm, flag, option, read_column_map
from groupwise.cli.audit_states import audit_states
from groupwise.cli.screen import (
    errors,
    file_progress,
    format_share,
    make_table,
    output,
    print_json,
    print_line,
    shorten,
)
from groupwise.data.step_table import StepTable
from groupwise.data.token_table import TokenTable
from groupwise.parts.algorithm import Algorithm
from groupwise.report.audit import Audit, Census, HistoryLevel, MethodColumn, Mover, audit_tables, gives_token_credit
from groupwise.report.audit_tokens import TokenColumn
from groupwise.report.explained_step import AGREEMENT
from groupwise.report.groups import find_underived
from groupwise.store.formats import is_run, open_rollouts
from groupwise.store.run_folder import CONFIG
from groupwise.system.errors import ConfigError, FileError, RecordError
from groupwise.training.run_reader import RunFolder

METHODS = ("grpo", "gigpo", "hgpo")
"""The default methods. A run folder adds its own method."""
DEPTH, GAMMA = 4, 0.95
"""The defaults of `--depth` and `--gamma`."""


def audit(
    file: Annotated[
        Path, argument("ROLLOUTS", "Rollouts (.jsonl, .jsonl.gz or .parquet), a run folder, or sessions with --state.")
    ],
    method: Annotated[
        list[str] | None,
        option("NAME", "Method: NAME, NAME:KEY=VALUE,... or a run file. Repeatable; default: grpo, gigpo and hgpo."),
    ] = None,
    depth: Annotated[
        int | None, option("N", f"Largest number of earlier states to compare; default: {DEPTH}.", min=0, max=16)
    ] = None,
    gamma: Annotated[
        float | None, option("NUMBER", f"Discount factor of the compared returns; default: {GAMMA}.", min=0, max=1)
    ] = None,
    format: Format = "auto",
    map_: MapEntries = None,
    state: Annotated[
        str | None, option("RULE,...", "Audit sessions of an agent under state rules, e.g. exchange,last_tool_result.")
    ] = None,
    writes: Annotated[
        str | None, option("TOOL,...", "With --state: tools that change the environment, e.g. send_*,book.")
    ] = None,
    ignore: Annotated[
        str | None, option("TOOL,...", "With --state: tools whose calls do not count; default: think.")
    ] = None,
    as_json: Annotated[bool, flag("--json", "Print the audit as JSON.")] = False,
    trust: Trust = False,
) -> None:
    """Audit recorded rollouts under several methods. Groups, histories and advantages are compared."""
    if state is not None:
        if map_ or format != "auto":
            raise ConfigError("--state recognises the form of sessions by itself; leave --format and --map out")
        if depth is not None or gamma is not None:
            raise ConfigError(
                "--depth and --gamma compare recorded states, and --state makes states; give them to a method instead, "
                "e.g. --method hgpo:depth=2,gamma=1"
            )
        audit_states(file, state, writes=writes, ignore=ignore, method=method, as_json=as_json)
        return
    if writes is not None or ignore is not None:
        raise ConfigError("--writes and --ignore are settings of state rules; add --state, e.g. --state exchange")
    algorithms = {name: build_algorithm(name) for name in method or METHODS}
    if not method and (file / CONFIG).is_file():
        algorithms |= _load_own_algorithm(file)
    rollouts = open_rollouts(file, format=format, columns=read_column_map(map_))
    depth, gamma = DEPTH if depth is None else depth, GAMMA if gamma is None else gamma
    with file_progress(rollouts.size, f"auditing {file.name}") as progress:
        comparison = JournalComparison(file, algorithms) if is_run(file) else None
        token_rows: list[dict[str, Any]] = []

        def make_tables() -> Iterator[StepTable]:
            for chunk in rollouts.chunks(progress=progress, keeps_tokens=gives_token_credit(algorithms)):
                token_rows[:], table = chunk.tokens, chunk.table()
                if comparison is not None:
                    comparison.note_differing(table)
                yield table

        read_tokens = partial(TokenTable.from_rows, rows=token_rows)  # of the latest table
        try:
            result = audit_tables(make_tables(), algorithms, depth=depth, gamma=gamma, read_tokens=read_tokens)
        except FileError:
            raise
        except RecordError as error:  # a method lacks a column
            raise RecordError(f"{file}: {error}") from None
    if comparison is not None and (words := comparison.describe()):
        print_line(words, to=errors())
    if as_json:
        print_json(result.as_json())
    else:
        _print_audit(result, file)


def _load_own_algorithm(folder: Path) -> dict[str, Algorithm]:
    """A run's own algorithm; if it cannot be loaded, the audit goes on without it."""
    from groupwise.training.config.run_file import load_algorithm  # imports the whole schema

    try:
        return {OWN: load_algorithm(folder / CONFIG)}
    except ConfigError as error:
        print_line(f"without {OWN} method: {error}", to=errors())
        return {}


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def _describe_flaws(census: Census) -> str:
    apart = {"malformed": census.malformed_steps, "rejected": census.refused_steps}
    known = [f"{count} {flaw}" for flaw, count in apart.items() if count is not None]
    if not known and census.invalid_steps is not None:
        known = [f"{census.invalid_steps} invalid"]
    return f"{' and '.join(known)} steps" if known else "malformed and invalid steps are not recorded"


def _print_audit(result: Audit, file: Path) -> None:
    console, census = output(), result.census
    console.print(f"[bold]Audit of {escape(str(file))}[/]")
    console.print(
        f"{_count(census.tasks, 'task')}, {_count(census.rollouts, 'rollout')}, {_count(census.steps, 'step')}; "
        f"mean return {census.mean_return:.4g}; {_count(census.lone_tasks, 'task')} with one rollout, "
        f"{census.equal_tasks} with equal returns; {_describe_flaws(census)}\n"
    )
    if levels := [level for level in result.levels if level.groups]:  # without a group all numbers are zeros
        console.print(_make_levels_table(levels, census.steps), "")
    console.print(_make_methods_table(result.methods, census.steps), "")
    if result.token_methods is not None:
        console.print(_make_tokens_table(result.token_methods), "")
    if len(result.methods) > 1:
        first, last = result.methods[0].name, result.methods[-1].name
        _print_movers(console, f"Steps that gain most from {escape(first)} to {escape(last)}", result.gains)
        _print_movers(console, f"Steps that lose most from {escape(first)} to {escape(last)}", result.losses)
        _print_token_movers(console, f"Tokens that change most from {escape(first)} to {escape(last)}", result)
    console.print("[bold]Findings[/]")
    for number, finding in enumerate(result.findings, start=1):
        console.print(f" {number}. {escape(finding)}")


def _make_levels_table(levels: list[HistoryLevel], steps: int) -> Table:
    headings = ("depth", "groups", "mean size", "compared", "own only", "alone", "too early", "all equal")
    more = ("hide histories", "baseline moves", "sign flips")
    table = make_table(*headings, *more, align="r", title="Groups by depth of history (fractions of all steps)")
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


def _make_methods_table(methods: list[MethodColumn], steps: int) -> Table:
    headings = ("method", "compared", "own\nonly", "exactly 0", "mean |A|", "max |A|")
    others = [f"flips / r against\n{escape(other.name)}" for other in methods]
    table = make_table(*headings, *others, title="Advantages under each method", bold=True)
    for column in methods:
        own = column.own_rollout_steps
        against = [_compare_columns(column, other) for other in methods]
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


def _make_tokens_table(methods: list[TokenColumn]) -> Table:
    title = f"Advantages of {methods[0].tokens:,} sampled tokens under each method (without token credit: of the step)"
    headings = ("method", "train", "exactly 0", "mean |A|", "max |A|", "inside steps")
    others = [f"flips / r against {escape(other.name)}" for other in methods]
    table = make_table(*headings, *others, title=title, bold=True)
    for column in methods:
        table.add_row(
            escape(column.name),
            format_share(column.trained_tokens, column.tokens),
            format_share(column.silent_tokens, column.tokens),
            f"{column.mean_size:.3f}",
            f"{column.largest:.3f}",
            "none" if column.inside_share is None else f"{100 * column.inside_share:.1f} %",
            *(_compare_columns(column, other) for other in methods),
        )
    return table


def _compare_columns(column: MethodColumn | TokenColumn, other: MethodColumn | TokenColumn) -> str:
    if other.name == column.name:
        return "-"
    correlation = column.correlation[other.name]
    flips = format_share(column.flips[other.name], column.both_signed[other.name])
    return f"{flips} / {'none' if correlation is None else format(correlation, '.2f')}"


def _print_movers(console: Console, title: str, movers: list[Mover]) -> None:
    if not movers:
        return
    headings = ("task", "rollout", "step", "before", "after", "state", "action")
    table = make_table(*headings, align="llrrrl", title=title)
    for mover in movers:
        table.add_row(
            escape(shorten(str(mover.task), 34)),
            escape(str(mover.rollout)),
            str(mover.step),
            f"{mover.before:+.3f}",
            f"{mover.after:+.3f}",
            escape(shorten(mover.state, 44)),
            escape(shorten(mover.action, 30)),
        )
    console.print(table, "")


def _print_token_movers(console: Console, title: str, result: Audit) -> None:
    if not result.token_movers:
        return
    headings = ("task", "rollout", "step", "token", "id", "before", "after")
    table = make_table(*headings, align="llr", title=title)
    for mover in result.token_movers:
        place = (str(mover.step), str(mover.position), str(mover.token))
        names = escape(shorten(str(mover.task), 34)), escape(str(mover.rollout))
        table.add_row(*names, *place, f"{mover.before:+.3f}", f"{mover.after:+.3f}")
    console.print(table, "")


OWN = "this run's own"


class JournalComparison:
    """Compares the advantages of a run's own method, as an audit computes them, with those in its journal."""

    def __init__(self, path: Path, algorithms: Mapping[str, Algorithm]) -> None:
        with RunFolder(path) as folder:
            own = folder.find_algorithm()
            is_compared = own is not None and any(other.config() == own.config() for other in algorithms.values())
            self._own = own if is_compared else None
            self._underived = find_underived(folder) if is_compared else {}
            self._recorded: dict[tuple[str, Hashable, int], float] = {}
            for number in folder.updates if is_compared else ():
                for record in folder.journal.trajectories(number):
                    for row, value in zip(record["steps"], record["credit"], strict=True):
                        self._recorded[f"{record['task']}@{number}", record["rollout"], row["step"]] = value
        self._differing: set[int] = set(self._underived)

    def note_differing(self, table: StepTable) -> None:
        """Note the updates in which the advantages of the table's steps differ from the journal's."""
        if self._own is None:
            return
        values = self._own.credit(table).trace.values
        tasks = [str(table.task_ids[task]) for task in table.task.tolist()]
        rollouts = [table.rollout_ids[rollout] for rollout in table.rollout.tolist()]
        names = zip(tasks, rollouts, table.step.tolist(), strict=True)
        recorded = np.array([self._recorded.get(name, np.nan) for name in names])
        for step in np.flatnonzero(~np.isclose(values, recorded, rtol=AGREEMENT, atol=AGREEMENT)).tolist():
            self._differing.add(int(tasks[step].rpartition("@")[2]))

    def describe(self) -> str:
        """Name the updates whose advantages differ from those in training, and why; empty = none."""
        if not self._differing:
            return ""
        first, num = min(self._differing), len(self._differing)
        reason = "an audit leaves out replayed rollouts; `groupwise explain` derives a step as in training"
        if first in self._underived:
            reason = self._underived[first].reason
        return (
            f"{OWN} method gives other advantages than the journal in {num} update{'s' if num > 1 else ''}, first in "
            f"update {first} ({reason}). The table shows what it gives the recorded rollouts alone."
        )
