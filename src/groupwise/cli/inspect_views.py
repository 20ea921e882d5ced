"""What `groupwise inspect` prints: tables of updates and groups, an attempt as a dialogue, two runs side by side."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any

from rich.console import Console, Group
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from groupwise.cli import screen
from groupwise.cli.screen import output, shorten
from groupwise.report.derived_credit import choose_shade, describe_company, find_reach, shade_tokens
from groupwise.report.explained_step import choose_pairs
from groupwise.report.groups import (
    PlayedAttempt,
    PlayedGroup,
    PlayedStep,
    describe_missing_details,
    describe_requests,
    describe_set_aside,
    describe_underived,
)
from groupwise.report.number_format import (
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
from groupwise.report.overview import UpdateLine, describe_lag, describe_penalties, find_penalised_updates
from groupwise.report.prompts import TaskGoal, TokenTexts
from groupwise.report.rescue import (
    Rescue,
    describe_guidance,
    describe_origin,
    describe_recalled,
    describe_shaping,
    format_sizes,
    rescue_of,
)
from groupwise.training.differences import Differences
from groupwise.training.evaluation.summary import PanelScore, RunVerdict, describe_when
from groupwise.training.run_reader import RunFolder

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
    silent, pairs = [group for group in groups if not group.teaches], format_num_pairs(groups)
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
            mark_group(group, rescues.get(group.task)),
        )
    table.columns[-1].justify = "left"
    console.print(table)
    for group in groups:
        if group.set_aside:
            console.print(f"{escape(group.task)}: {escape(describe_set_aside(group))}", highlight=False)
    if rescues:
        console.print("\nwhat was done for them", highlight=False)
        console.print(make_rescues_table(list(rescues.values())))


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
    for line in filter(None, [*describe_rescue(group), describe_set_aside(group), *describe_requests(group)]):
        console.print(escape(line), highlight=False)
    _print_underived([group])
    reach = max((abs(step.credit) for member in group.members for step in member.steps), default=0.0)
    console.print(_make_attempts_table(group, played, reach))
    for line in describe_pairs(group, played):
        console.print(escape(line), highlight=False, soft_wrap=True)
    token_reach, palette = find_token_reach(group), choose_palette(console)
    if any(step.tokens for step in played.steps):
        console.print(describe_shades(token_reach, palette))
    console.print()
    dialogue = Table.grid(padding=(0, 2, 0, 0))
    dialogue.add_column(justify="right", style="dim")
    for step in played.steps:
        tokens = lay_out_tokens(step, texts, token_reach, palette)
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
        origin = describe_joined_attempt(member) if member in group.joined else ""
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
        *lay_out_channels(step),
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


# What `groupwise inspect` shows below and beside the credit of a step: shaded tokens, further channels, pairs.

Palette = tuple[tuple[str, ...], tuple[str, ...]]
"""Styles of praise and of blame, from the weakest shade to the strongest."""

# Colour and ground are both given, so that a text can be read on a terminal of any ground.
MANY_COLOURS: Palette = (
    ("black on #dce9f8", "black on #b5d1f2", "black on #8ab6ea", "white on #2f6fbc", "white on #1a4f96"),
    ("black on #fbe6d2", "black on #f6c79c", "black on #efa565", "white on #b85209", "white on #8f3f06"),
)
SIXTEEN_COLOURS: Palette = (
    ("black on bright_blue",) * 2 + ("white on blue",) * 2 + ("bold white on blue",),
    ("black on bright_yellow",) * 2 + ("black on yellow",) * 2 + ("bold black on yellow",),
)
MAX_PAIRS = 12
"""Pairs of an attempt that are listed; more are counted."""


def choose_palette(console: Console) -> Palette | None:
    """The colours that a console can show; None where it shows none: signs and numbers take their place."""
    if not console.is_terminal or console.color_system is None or console.no_color:
        return None
    return MANY_COLOURS if console.color_system in ("256", "truecolor") else SIXTEEN_COLOURS


def find_token_reach(group: PlayedGroup) -> float:
    """The size of token credit that the strongest shade stands for: the largest in the group."""
    return find_reach(step.tokens for member in group.members for step in member.steps if step.tokens)


def describe_shades(reach: float, palette: Palette | None) -> Text:
    """What the shades of tokens mean."""
    if palette is None:
        return Text(
            "credit of tokens: its number stands before the tokens that have it, · before those that do not train"
        )
    praise, blame = palette
    scale = [*reversed(blame), "", *praise]
    ends = f" {format_signed(-reach)} ", f" {format_signed(reach)} "
    swatches = [("  " if style else " 0 ", style) for style in scale]
    return Text.assemble("credit of tokens", ends[0], *swatches, ends[1], ("  dim", "dim"), " does not train")


def lay_out_tokens(step: PlayedStep, texts: TokenTexts, reach: float, palette: Palette | None) -> list[Text]:
    """The response of a step, its tokens shaded by their credit, and how many of them train."""
    tokens = step.tokens
    if tokens is None or not tokens.ids:
        return []
    text = Text()
    for piece in shade_tokens(tokens, texts.cut(tokens.ids)):
        shown = screen.escape_recorded(piece.text)
        if palette is not None:
            text.append(shown, "dim" if piece.credit is None else _choose_style(piece.credit, reach, palette))
        else:
            number = "·" if piece.credit is None else format_signed(piece.credit)
            text.append(f"{' ' if text else ''}{number}«{shown.strip(' ')}»")
    return [text, Text(tokens.describe(), style="dim")]


def lay_out_channels(step: PlayedStep) -> list[Text]:
    """The credit of a step in each further channel."""
    return [Text(f"channel {name} {format_signed(credit)}") for name, credit in step.channels.items()]


def describe_pairs(group: PlayedGroup, attempt: PlayedAttempt) -> list[str]:
    """The pairs that an attempt is in, a line each; nothing where the loss reads none."""
    if group.pairs is None:
        return []
    own = choose_pairs(group.pairs, task=group.task, attempt=attempt.attempt)
    if not own:
        return [f"attempt {attempt.attempt} is in none of the {len(group.pairs)} pairs of the task"]
    more = [f"… and {len(own) - MAX_PAIRS} more pairs"] if len(own) > MAX_PAIRS else []
    return [*(f"pair: {pair.describe()}" for pair in own[:MAX_PAIRS]), *more]


def format_num_pairs(groups: Sequence[PlayedGroup]) -> list[str] | None:
    """How many pairs each group has; None where no loss reads any."""
    if all(group.pairs is None for group in groups):
        return None
    return [format_compact(len(group.pairs or ())) for group in groups]


def attempt_as_json(group: PlayedGroup, attempt: PlayedAttempt, texts: TokenTexts) -> dict[str, Any]:
    """An attempt as plain data: with its tokens, channels and pairs where there are any."""
    bare = replace(attempt, steps=tuple(replace(step, tokens=None) for step in attempt.steps))
    data: dict[str, Any] = {"attempt": asdict(bare)}
    for step, row in zip(attempt.steps, data["attempt"]["steps"], strict=True):
        del row["tokens"]
        if not step.channels:
            del row["channels"]
        if step.tokens is not None:
            row["tokens"] = step.tokens.as_json(texts.cut(step.tokens.ids))
    if group.pairs is not None:
        data["pairs"] = [asdict(pair) for pair in choose_pairs(group.pairs, task=group.task, attempt=attempt.attempt)]
    if group.details_missing:
        data["details_missing"] = group.details_missing
    return data


def _choose_style(credit: float, reach: float, palette: Palette) -> str:
    shade = choose_shade(credit, reach)
    return "" if not shade else palette[shade < 0][abs(shade) - 1]


# What `groupwise inspect` prints of groups for which something was done: by what, from when, and what came of it.


def mark_group(group: PlayedGroup, rescue: Rescue | None) -> str:
    """A group in a word, where there is one to say."""
    if not group.teaches:
        return "[dark_orange]teaches nothing[/]"
    return "rescued" if rescue and rescue.is_rescued else ""


def make_rescues_table(rescues: Sequence[Rescue]) -> Table:
    """What was done for each group, one a line, with the mean size of its credit without and with it."""
    table = Table(box=None, pad_edge=False)
    for name in ("task", "recalled", "shaped", "guidance"):
        table.add_column(name)
    for name in ("|credit| without", "with"):
        table.add_column(name, justify="right")
    for rescue in rescues:
        done = (describe_recalled(rescue), describe_shaping(rescue), describe_guidance(rescue))
        table.add_row(escape(rescue.task), *done, *format_sizes(rescue))
    return table


def describe_rescue(group: PlayedGroup) -> list[str]:
    """Lines on what was done for a group."""
    rescue = rescue_of(group)
    if rescue is None:
        return []
    lines = []
    if rescue.has_guidance and (shown := rescue.guidance):
        lines.append(f"with guidance in the prompt: attempt {shown.attempt} of update {shown.number} at {shown.task}")
    elif rescue.has_guidance and not rescue.request_words:  # what was asked for is told by itself
        lines.append("with guidance: not recorded which")
    if rescue.num_shaped:
        lines.append(f"rewards shaped: {describe_shaping(rescue)}")
    if rescue.size_without is not None:
        without, size = format_sizes(rescue)
        lines.append(f"mean |credit| {without} without what joined or was added, {size} with it")
    return lines


def describe_joined_attempt(attempt: PlayedAttempt) -> str:
    """Where an attempt that joined a group comes from, with its credit."""
    credit = ", ".join(format_signed(step.credit) for step in attempt.steps[:4])
    more = ", …" if len(attempt.steps) > 4 else ""
    return f"{describe_origin(attempt)}, credit {credit}{more}"


def list_joined(group: PlayedGroup) -> list[dict[str, Any]]:
    """The attempts that joined a group, as plain data without their steps."""
    return [
        {
            "attempt": attempt.attempt,
            "origin": attempt.origin,
            "outcome": attempt.outcome,
            "success": attempt.success,
            "source": attempt.source,
            "credit": [step.credit for step in attempt.steps],
        }
        for attempt in group.joined
    ]
