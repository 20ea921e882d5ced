"""What `groupwise inspect` prints: tables of updates and groups, an attempt as a dialogue, two runs side by side."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from rich.console import Group
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from groupwise.cli.inspect import detail_views, rescue_views
from groupwise.cli.terminal import screen
from groupwise.cli.terminal.screen import output, shorten
from groupwise.evaluation.verdict import PanelScore, RunVerdict, describe_when
from groupwise.reports.run.derived_credit import describe_company
from groupwise.reports.run.differences import Differences
from groupwise.reports.run.goals import TaskGoal
from groupwise.reports.run.number_format import (
    NO_NUMBER,
    format_compact,
    format_count,
    format_number,
    format_percent,
    format_points,
    format_seconds,
    format_signed,
    shorten_hash,
)
from groupwise.reports.run.overview import UpdateLine, describe_lag, describe_penalties, find_penalised_updates
from groupwise.reports.run.rescue import rescue_of
from groupwise.reports.run.response_text import TokenTexts
from groupwise.reports.run.run_folder import RunFolder
from groupwise.reports.run.update_groups import (
    PlayedAttempt,
    PlayedGroup,
    PlayedStep,
    describe_missing_details,
    describe_requests,
    describe_set_aside,
    describe_underived,
)

PLUS, MINUS = "bright_blue", "dark_orange"
STANDING, HANGING = "▁▂▃▄▅▆▇█", "▔▀"
HALF = 8
"""Characters on either side of the middle of a bar."""


def print_overview(folder: RunFolder, method: str, lines: Sequence[UpdateLine], verdicts: Sequence[RunVerdict]) -> None:
    """The updates of a run, one a line."""
    console = output()
    env = (folder.setting("env") or {}).get("kind", "")
    console.print(
        f"[bold]{escape(folder.name)}[/]: {escape(method)}{escape(f' on {env}' if env else '')}", highlight=False
    )
    if folder.panels:
        named = ", ".join(f"{escape(split)} {shorten_hash(digest)}" for split, digest in folder.panels.items())
        console.print(f"[dim]panels: {named}[/]", highlight=False)
    lag = describe_lag(folder)
    if lag:
        console.print(f"attempts played {lag}", highlight=False, markup=False, soft_wrap=True)
    if not lines:
        console.print("no update yet")
    else:
        console.print(_make_updates_table(lines))
    penalised = describe_penalties(find_penalised_updates(folder), len(lines))
    if penalised:
        console.print(f"[{MINUS}]{escape(penalised)}[/]", highlight=False, soft_wrap=True)
    alarms, changes = folder.journal.alarms(), folder.journal.changes()
    for line in [*(alarm.line for alarm in alarms), *(change.line for change in changes)]:
        console.print(f"[{MINUS}]{escape(screen.escape_recorded(line))}[/]", highlight=False, soft_wrap=True)
    for verdict in verdicts:
        for score in verdict.scores:
            words = format_score(score, verdict.measure)
            played = f"[dim](panel {shorten_hash(score.panel)})[/]"
            console.print(
                f"{escape(verdict.split)}, {describe_when(score)}: {verdict.measure} {words} {played}", highlight=False
            )


def print_groups(folder: RunFolder, number: int, groups: Sequence[PlayedGroup]) -> None:
    """The groups of an update, one a line."""
    console = output()
    silent, pairs = [group for group in groups if not group.teaches], detail_views.format_num_pairs(groups)
    rescues = {group.task: rescue for group in groups if (rescue := rescue_of(group))}
    rescued = sum(rescue.is_rescued for rescue in rescues.values())
    console.print(
        f"[bold]{escape(folder.name)}, update {number}[/]: {format_count(len(groups), 'group')}, "
        f"{len(silent)} without any {'pair' if pairs else 'credit'}{f', {rescued} rescued' if rescues else ''}",
        highlight=False,
    )
    for fault in folder.journal.faults(number):
        place = f"{fault['task']}, attempt {fault['attempt']}, after {format_count(fault['steps'], 'step')}"
        console.print(f"[{MINUS}]{escape(fault['stop'])}[/] {escape(place)}: {escape(fault['error'])}", highlight=False)
    if not groups:
        return
    _print_underived(groups)
    names = ("task", "attempts", "solved", "outcomes", "spread", "steps", "compared", "mean |credit|")
    table = _make_table(*names, *(["pairs"] if pairs else []), "")
    for number_of_group, group in enumerate(groups):
        summary = summarise_group(group)
        table.add_row(
            escape(group.task),
            str(summary["attempts"]),
            NO_NUMBER if summary["solved"] is None else str(summary["solved"]),
            " ".join(format_compact(outcome) for outcome in group.outcomes[:8])
            + (" …" if len(group.outcomes) > 8 else ""),
            format_number(group.spread, 3),
            str(summary["steps"]),
            NO_NUMBER if group.num_compared is None else str(group.num_compared),
            format_number(summary["mean_credit_size"], 3),
            *([pairs[number_of_group]] if pairs else []),
            rescue_views.mark_group(group, rescues.get(group.task)),
        )
    table.columns[-1].justify = "left"
    console.print(table)
    for group in groups:
        if group.set_aside:
            console.print(f"{escape(group.task)}: {escape(describe_set_aside(group))}", highlight=False)
    if rescues:
        console.print("\nwhat was done for them", highlight=False)
        console.print(rescue_views.make_rescues_table(list(rescues.values())))


def _print_underived(groups: Sequence[PlayedGroup]) -> None:
    for words in (describe_underived(groups), describe_missing_details(groups)):
        if words:
            output().print(f"[{MINUS}]{escape(words)}[/]", highlight=False)


def print_attempt(number: int, group: PlayedGroup, played: PlayedAttempt, goal: TaskGoal, texts: TokenTexts) -> None:
    """An attempt as a dialogue, after its group at a glance."""
    console = output()
    about = f" ({', '.join(goal.tags)})" if goal.tags else ""
    console.print(f"[bold]{escape(group.task)}[/]{escape(about)}, update {number}", highlight=False)
    if goal.text:
        console.print(f"goal: {escape(goal.text)}", highlight=False)
    for line in filter(
        None, [*rescue_views.describe_rescue(group), describe_set_aside(group), *describe_requests(group)]
    ):
        console.print(escape(line), highlight=False)
    _print_underived([group])
    reach = max((abs(step.credit) for member in group.members for step in member.steps), default=0.0)
    console.print(_make_attempts_table(group, played, reach))
    for line in detail_views.describe_pairs(group, played):
        console.print(escape(line), highlight=False, soft_wrap=True)
    token_reach, palette = detail_views.find_token_reach(group), detail_views.choose_palette(console)
    if any(step.tokens for step in played.steps):
        console.print(detail_views.describe_shades(token_reach, palette))
    console.print()
    dialogue = Table.grid(padding=(0, 2, 0, 0))
    dialogue.add_column(justify="right", style="dim")
    for step in played.steps:
        tokens = detail_views.lay_out_tokens(step, texts, token_reach, palette)
        dialogue.add_row(str(step.index), _lay_out_step(step, reach, tokens))
    console.print(dialogue)
    if played.error:
        console.print(f"[bold red]error[/] {escape(played.error)}", highlight=False)
    console.print(f"{escape(played.stop)}; outcome {format_compact(played.outcome)}", highlight=False)


def print_differences(differences: Differences, first: str, second: str) -> None:
    """Two runs side by side."""
    console = output()
    console.print(f"[bold]A[/] {escape(first)}\n[bold]B[/] {escape(second)}\n", highlight=False)
    if differences.settings:
        table = _make_table("setting", "A", "B")
        for setting in differences.settings:
            table.add_row(escape(setting.path), _format_setting(setting.first), _format_setting(setting.second))
        console.print(table, "")
    else:
        console.print("no setting differs\n")
    if differences.number is None:
        console.print("there is no update that both have made")
    else:
        table = _make_table(f"metric at update {differences.number}", "A", "B", "B less A")
        for metric in differences.metrics:
            change = format_compact(metric.change)
            shown = f"+{change}" if metric.change > 0 else change
            table.add_row(escape(metric.name), format_compact(metric.first), format_compact(metric.second), shown)
        console.print(table, "")
    if differences.scores:
        table = _make_table("last evaluation", "A", "B", "B less A")
        for score in differences.scores:
            gain = score.second.value - score.first.value
            shown = format_points(gain) if score.measure == "success" else format_signed(gain)
            sides = [
                f"{format_score(side, score.measure)}, update {side.number}" for side in (score.first, score.second)
            ]
            table.add_row(escape(score.split), *sides, shown if score.is_one_panel else "other tasks")
        console.print(table)
    else:
        console.print("no split was evaluated in both")


def summarise_group(group: PlayedGroup) -> dict[str, Any]:
    """A group as plain data, without its steps."""
    pairs = {} if group.pairs is None else {"pairs": [asdict(pair) for pair in group.pairs]}
    successes = [attempt.success for attempt in group.attempts if attempt.success is not None]
    steps = group.steps
    return {
        "task": group.task,
        "attempts": len(group.attempts),
        "solved": sum(map(bool, successes)) if successes else None,
        "outcomes": group.outcomes,
        "spread": group.spread,
        "steps": len(steps),
        "compared": group.num_compared,
        "mean_credit_size": group.credit_size,
        "teaches": group.teaches,
        "rescue": rescue_of(group),
        "set_aside": [
            {
                "attempt": attempt.attempt,
                "outcome": attempt.outcome,
                "stop": attempt.stop,
                "by": attempt.set_aside_by,
            }
            for attempt in group.set_aside
        ],
    } | pairs


def format_score(score: PanelScore, measure: str) -> str:
    """A score with its interval and how many tasks it is over."""
    low, high = score.interval
    tries = "" if score.attempts == score.tasks else f" in {format_count(score.attempts, 'attempt')}"
    over = f"over {format_count(score.tasks, 'task')}{tries}"
    if measure == "success":
        bounds = f"[{format_number(100 * low, 1)}, {format_number(100 * high, 1)}]"
        return f"{format_percent(score.value)} {escape(bounds)} {over}"
    return f"{format_compact(score.value)} {escape(f'[{format_compact(low)}, {format_compact(high)}]')} {over}"


def format_credit_bar(credit: float, reach: float) -> Text:
    """A bar to the right of the middle for positive credit, to the left for negative."""
    size = abs(credit) / reach if reach and math.isfinite(credit) else 0.0
    filled = max(round(HALF * min(size, 1.0)), 1 if credit else 0)
    left = "█" * filled if credit < 0 else ""
    right = "█" * filled if credit > 0 else ""
    style = PLUS if credit > 0 else MINUS
    return Text.assemble(
        f"{'':{HALF - len(left)}}", (left, style), ("│", "dim"), (right, style), f"{'':{HALF - len(right)}}"
    )


def _make_updates_table(lines: Sequence[UpdateLine]) -> Table:
    has_rescued = any(line.rescued for line in lines)
    rescued = ["rescued"] if has_rescued else []
    table = _make_table("update", "success", "return", "steps", "compared", *rescued, "loss", "time", first="right")
    for line in lines:
        table.add_row(
            str(line.number),
            format_percent(line.success),
            format_number(line.returned, 3),
            format_number(line.steps, 1),
            format_percent(line.compared),
            *([format_percent(line.rescued)] if has_rescued else []),
            format_number(line.loss, 4),
            format_seconds(line.seconds),
        )
    return table


def _make_attempts_table(group: PlayedGroup, shown: PlayedAttempt, reach: float) -> Table:
    """The attempts of a group at a glance: a mark a step, that stands for positive credit and hangs for negative."""
    comes_from = ["from"] if group.joined else []
    table = _make_table("attempt", "outcome", "ended", "steps", "credit, step by step", *comes_from, first="right")
    for column in table.columns[4:]:
        column.justify = "left"
    for member in group.members:
        origin = rescue_views.describe_joined_attempt(member) if member in group.joined else ""
        table.add_row(
            f"[bold]{member.attempt}[/]" if member is shown else str(member.attempt),
            format_compact(member.outcome),
            escape(member.stop),
            str(len(member.steps)),
            Text.assemble(*(_choose_mark(step.credit, reach) for step in member.steps)),
            *([escape(origin)] if comes_from else []),
        )
    return table


def _choose_mark(credit: float, reach: float) -> tuple[str, str]:
    if not credit:
        return ("·", "dim")
    size = min(abs(credit) / reach, 1.0) if reach and math.isfinite(credit) else 0.0
    marks = STANDING if credit > 0 else HANGING  # so that a terminal without colours shows the sign too
    return (marks[min(int(len(marks) * size), len(marks) - 1)], PLUS if credit > 0 else MINUS)


def _lay_out_step(step: PlayedStep, reach: float, tokens: Sequence[Text]) -> Group:
    """What was shown, said and done, and the credit for it with whom it was compared; `tokens` is what was said."""
    notes = [
        (f"  {step.flaw}" if step.flaw else "", MINUS),
        ("  cut off" if step.cut else "", MINUS),
        (f"  reward {format_compact(step.reward)}" if step.reward else "", ""),
        (f", of which {format_compact(step.added)} by comparison" if step.added else "", ""),
    ]
    company = f"  compared with {describe_company(step.company)}" if step.company else ""
    credit = (f"credit {format_signed(step.credit):>7} ", format_credit_bar(step.credit, reach), (company, "dim"))
    lines = [
        Text(screen.escape_recorded(step.observation), style="dim"),
        *(tokens or [Text(screen.escape_recorded(step.words_beyond_action), style="italic")]),
        Text.assemble("> ", (screen.escape_recorded(step.action), "bold"), *notes),
        Text.assemble(*credit),
        *detail_views.lay_out_channels(step),
        Text(" "),
    ]
    return Group(*(line for line in lines if line))


def _make_table(*headings: str, first: str = "left") -> Table:
    table = Table(box=None, pad_edge=False)
    for place, heading in enumerate(headings):
        table.add_column(heading, justify="right" if place or first == "right" else "left")
    return table


def _format_setting(value: Any) -> str:
    return NO_NUMBER if value is None else escape(shorten(str(value), 50))
