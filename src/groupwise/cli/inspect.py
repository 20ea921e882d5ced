"""`groupwise inspect`: show the updates, groups and steps of a run, or compare two runs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated, Any

from rich.console import Group
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from groupwise.cli.arguments import Trust, argument, flag, option
from groupwise.cli.attributed_tokens import choose_colours, print_recorded_prompt
from groupwise.cli.explain import print_step
from groupwise.cli.screen import errors, escape_recorded, make_table, output, print_json, print_line, shorten
from groupwise.data.task_ids import find_task
from groupwise.report import overview
from groupwise.report.derived_credit import choose_shade, describe_company, explain_run_step, find_reach, shade_tokens
from groupwise.report.explained_step import choose_pairs
from groupwise.report.groups import (
    PlayedGroup,
    PlayedRollout,
    PlayedStep,
    describe_missing_details,
    describe_requests,
    describe_set_aside,
    describe_underived,
    find_rollout,
    read_groups,
)
from groupwise.report.number_format import (
    NO_NUMBER,
    format_compact,
    format_count,
    format_interval,
    format_number,
    format_percent,
    format_points,
    format_seconds,
    format_signed,
    shorten_hash,
)
from groupwise.report.prompts import GoalLookup, TokenTexts, read_prompt
from groupwise.report.rescue import (
    describe_hint,
    describe_origin,
    describe_replayed,
    describe_shaping,
    format_sizes,
    rescue_of,
)
from groupwise.system.errors import ConfigError
from groupwise.training.evaluation.summary import TaskSetScore, describe_when
from groupwise.training.run_reader import RunFolder, compare_runs

PLUS, MINUS = "bright_blue", "dark_orange"
STANDING, HANGING = "▁▂▃▄▅▆▇█", "▔▀"
HALF = 8
"""Half the width of a bar, in characters."""


def inspect(
    run: Annotated[Path | None, argument("RUN", "Run folder.")] = None,
    update: Annotated[int | None, option("N", "Show the groups of this update.", min=0)] = None,
    task: Annotated[str | None, option("ID", "Show a rollout of this task (id or its beginning).")] = None,
    rollout: Annotated[int | None, option("N", "Number of the rollout; default: the best one.", min=0)] = None,
    step: Annotated[int | None, option("N", "Explain the advantage of this step.", min=0)] = None,
    token: Annotated[int | None, option("N", "Also explain this token of that step, counted from 0.", min=0)] = None,
    prompt: Annotated[bool, flag("--prompt", "Show the prompt of that step, coloured by origin, instead.")] = False,
    diff: Annotated[
        tuple[Path, Path] | None, option("RUN RUN", "Compare two runs: settings, metrics, success.")
    ] = None,
    as_json: Annotated[bool, flag("--json", "Print the output as JSON.")] = False,
    trust: Trust = False,
) -> None:
    """Inspect the updates, groups, rollouts and steps of a run. Each step is shown with its advantage."""
    if diff is not None:
        if run is not None or prompt or any(option is not None for option in (update, task, rollout, step, token)):
            raise ConfigError("--diff cannot be combined; use `groupwise inspect --diff A B`")
        _show_differences(*diff, as_json=as_json)
        return
    if run is None:
        raise ConfigError("no run given; use `groupwise inspect RUN`, or `groupwise inspect --diff A B`")
    needs = (
        (task, update, "--task needs an update; add --update N (`groupwise inspect RUN` lists them)"),
        (rollout, task, "--rollout needs a task; add --task ID (`groupwise inspect RUN --update N` lists them)"),
        (step, rollout, "--step needs a rollout; add --rollout N (`--update N --task ID` lists them)"),
        (token, step, "--token needs a step; add --step N (`--update N --task ID --rollout N` lists them)"),
        (prompt or None, step, "--prompt needs a step; add --step N (`--update N --task ID --rollout N` lists them)"),
    )
    for given, needed, sentence in needs:
        if given is not None and needed is None:
            raise ConfigError(sentence)
    if prompt and token is not None:
        raise ConfigError("--prompt and --token cannot be combined; use one at a time")
    with RunFolder(run) as folder:
        if update is None:
            _show_overview(folder, as_json=as_json)
            return
        for reason in folder.list_untrusted(with_env=task is not None):  # a rollout is shown with its goal
            print_line(f"[dim]{escape(reason)}[/]", markup=True, to=errors())
        groups = read_groups(folder, update)
        if task is None:
            _show_groups(folder, update, groups, as_json=as_json)
            return
        where = f"{run}, update {update}"
        name = find_task((group.task for group in groups), task, where=where)
        group = next(group for group in groups if group.task == name)
        number = group.best().rollout if rollout is None else find_rollout(group, rollout, where=where).rollout
        if step is None:
            _show_rollout(folder, update, group, number, as_json=as_json)
        elif prompt:
            recorded = read_prompt(folder, number=update, task=name, rollout=number, step=step)
            if as_json:
                place = {"update": update, "task": name, "rollout": number, "step": step}
                print_json(place | {"prompt": "".join(recorded.prompt_texts)} | asdict(recorded))
            else:
                title = f"update {update}, task {name}, rollout {number}, step {step}"
                print_recorded_prompt(output(), recorded, title=title)
        else:
            explained = explain_run_step(folder, number=update, task=name, rollout=number, step=step, token=token)
            method = folder.describe_method()
            print_step(explained, method=method, as_json=as_json, trained_with=method)


def _show_overview(folder: RunFolder, *, as_json: bool) -> None:
    lines, verdicts, console = overview.read_update_lines(folder), overview.list_verdicts(folder), output()
    alarms, changes = folder.journal.alarms(), folder.journal.changes()
    if as_json:
        updates = {"task_sets": folder.task_sets, "updates": lines, "evaluations": verdicts}
        print_json(updates | {"alarms": alarms, "changes": changes})
        return
    env = (folder.setting("env") or folder.setting("agent") or {}).get("kind", "")
    console.print(
        f"[bold]{escape(folder.name)}[/]: {escape(folder.describe_method())}{escape(f' on {env}' if env else '')}"
    )
    if folder.task_sets:
        named = ", ".join(f"{escape(split)} {shorten_hash(digest)}" for split, digest in folder.task_sets.items())
        console.print(f"[dim]task sets: {named}[/]")
    if lag := overview.describe_lag(folder):
        print_line(f"rollouts sampled {lag}")
    if not lines:
        console.print("no update yet")
    else:
        has_rescued = any(line.rescued for line in lines)
        rescued = ["rescued"] if has_rescued else []
        table = make_table("update", "success", "return", "steps", "compared", *rescued, "loss", "time", align="r")
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
        console.print(table)
    if penalised := overview.describe_penalties(overview.find_penalised_updates(folder), len(lines)):
        print_line(f"[{MINUS}]{escape(penalised)}[/]", markup=True)
    for said in [*(alarm.line for alarm in alarms), *(change.line for change in changes)]:
        print_line(f"[{MINUS}]{escape(said)}[/]", markup=True)
    for verdict in verdicts:
        for score in verdict.scores:
            words = _format_score(score, verdict.measure)
            played = f"[dim](task set {shorten_hash(score.task_set)})[/]"
            more = "" if score.score is None else f", score {format_compact(score.score)}"
            if score.pass_at is not None:
                more += f", pass@{score.pass_at.k} {format_percent(score.pass_at.success)}"
            if more and score.tokens is not None:
                more += f", {format_number(score.tokens, 1)} tokens"
            console.print(f"{escape(verdict.name)}, {describe_when(score)}: {verdict.measure} {words}{more} {played}")


def _show_groups(folder: RunFolder, number: int, groups: Sequence[PlayedGroup], *, as_json: bool) -> None:
    console, faults = output(), folder.journal.faults(number)
    if as_json:
        data = {"update": number, "groups": [_summarise_group(group) for group in groups], "faults": faults}
        print_json(data | {"underived": describe_underived(groups)})
        return
    num_silent, has_pairs = sum(not group.teaches for group in groups), any(group.pairs is not None for group in groups)
    rescues = {group.task: rescue for group in groups if (rescue := rescue_of(group))}
    rescued = sum(rescue.is_rescued for rescue in rescues.values())
    console.print(
        f"[bold]{escape(folder.name)}, update {number}[/]: {format_count(len(groups), 'group')}, "
        f"{num_silent} without {'any pair' if has_pairs else 'a learning signal'}"
        f"{f', {rescued} rescued' if rescues else ''}"
    )
    for fault in faults:
        place = f"{fault['task']}, rollout {fault['rollout']}, after {format_count(fault['steps'], 'step')}"
        console.print(f"[{MINUS}]{escape(fault['stop'])}[/] {escape(place)}: {escape(fault['error'])}")
    if not groups:
        return
    _print_underived(groups)
    names = ("task", "rollouts", "solved", "outcomes", "spread", "steps", "compared", "mean |advantage|")
    table = make_table(*names, *(["pairs"] if has_pairs else []), "", align="lrrrrrrrrl" if has_pairs else "lrrrrrrrl")
    for group in groups:
        summary, rescue = _summarise_group(group), rescues.get(group.task)
        mark = "rescued" if rescue and rescue.is_rescued else ""
        table.add_row(
            escape(group.task),
            str(summary["rollouts"]),
            NO_NUMBER if summary["solved"] is None else str(summary["solved"]),
            " ".join(format_compact(outcome) for outcome in group.outcomes[:8])
            + (" …" if len(group.outcomes) > 8 else ""),
            format_number(group.spread, 3),
            str(summary["steps"]),
            NO_NUMBER if group.num_compared is None else str(group.num_compared),
            format_number(summary["mean_credit_size"], 3),
            *([format_compact(len(group.pairs or ()))] if has_pairs else []),
            mark if group.teaches else "[dark_orange]no learning signal[/]",
        )
    console.print(table)
    for group in groups:
        if group.set_aside:
            console.print(f"{escape(group.task)}: {escape(describe_set_aside(group))}")
    if rescues:
        console.print("\nrescued by")
        headings = ("task", "replayed", "shaped", "hint", "|advantage| without", "with")
        table = make_table(*headings, align="llllr")
        for rescue in rescues.values():
            done = (describe_replayed(rescue), describe_shaping(rescue), describe_hint(rescue))
            table.add_row(escape(rescue.task), *done, *format_sizes(rescue))
        console.print(table)


def _print_underived(groups: Sequence[PlayedGroup]) -> None:
    for words in (describe_underived(groups), describe_missing_details(groups)):
        if words:
            output().print(f"[{MINUS}]{escape(words)}[/]")


def _show_rollout(folder: RunFolder, number: int, group: PlayedGroup, rollout: int, *, as_json: bool) -> None:
    """A rollout as a dialogue, after an overview of its group."""
    played, console = find_rollout(group, rollout, where=""), output()
    goal, texts = GoalLookup(folder.find_env()).find(group.task), TokenTexts(folder.path)
    if as_json:
        print_json({"update": number, "goal": goal.text, "tags": goal.tags} | _rollout_as_json(group, played, texts))
        return
    about = f" ({', '.join(goal.tags)})" if goal.tags else ""
    console.print(f"[bold]{escape(group.task)}[/]{escape(about)}, update {number}")
    if goal.text:
        console.print(f"goal: {escape(goal.text)}")
    for line in filter(None, [*_describe_rescue(group), describe_set_aside(group), *describe_requests(group)]):
        console.print(escape(line))
    _print_underived([group])
    reach = max((abs(step.credit) for member in group.members for step in member.steps), default=0.0)
    console.print(_make_rollouts_table(group, played, reach))
    for line in _describe_pairs(group, played):
        print_line(line)
    palette = choose_colours(console, MANY_COLOURS, SIXTEEN_COLOURS)
    token_reach = find_reach(step.tokens for member in group.members for step in member.steps if step.tokens)
    if any(step.tokens for step in played.steps):
        console.print(_describe_shades(token_reach, palette))
    console.print()
    dialogue = Table.grid(padding=(0, 2, 0, 0))
    dialogue.add_column(justify="right", style="dim")
    for step in played.steps:
        tokens = lay_out_tokens(step, texts, token_reach, palette)
        dialogue.add_row(str(step.step), _lay_out_step(step, reach, tokens))
    console.print(dialogue)
    if played.error:
        console.print(f"[bold red]error[/] {escape(played.error)}")
    console.print(f"{escape(played.stop)}; outcome {format_compact(played.outcome)}")


def _show_differences(first: Path, second: Path, *, as_json: bool) -> None:
    with RunFolder(first) as first_run, RunFolder(second) as second_run:
        differences = compare_runs(first_run, second_run)
    if as_json:
        print_json(differences)
        return
    console = output()
    console.print(f"[bold]A[/] {escape(str(first))}\n[bold]B[/] {escape(str(second))}\n")
    if differences.settings:
        table = make_table("setting", "A", "B")
        for setting in differences.settings:
            values = (setting.first, setting.second)
            cells = [NO_NUMBER if value is None else escape(shorten(str(value), 50)) for value in values]
            table.add_row(escape(setting.path), *cells)
        console.print(table, "")
    else:
        console.print("no setting differs\n")
    if differences.number is None:
        console.print("the runs have no update in common")
    else:
        table = make_table(f"metric at update {differences.number}", "A", "B", "B - A")
        for metric in differences.metrics:
            change = format_compact(metric.change)
            shown = f"+{change}" if metric.change > 0 else change
            table.add_row(escape(metric.name), format_compact(metric.first), format_compact(metric.second), shown)
        console.print(table, "")
    if differences.scores:
        table = make_table("last evaluation", "A", "B", "B - A")
        for score in differences.scores:
            gain = score.second.value - score.first.value
            shown = format_points(gain) if score.measure == "success" else format_signed(gain)
            sides = [
                f"{_format_score(side, score.measure)}, update {side.number}" for side in (score.first, score.second)
            ]
            table.add_row(escape(score.name), *sides, shown if score.is_one_task_set else "other tasks")
        console.print(table)
    else:
        console.print("no task set was evaluated in both")


def _summarise_group(group: PlayedGroup) -> dict[str, Any]:
    pairs = {} if group.pairs is None else {"pairs": [asdict(pair) for pair in group.pairs]}
    successes = [rollout.success for rollout in group.rollouts if rollout.success is not None]
    steps = group.steps
    return {
        "task": group.task,
        "rollouts": len(group.rollouts),
        "solved": sum(map(bool, successes)) if successes else None,
        "outcomes": group.outcomes,
        "spread": group.spread,
        "steps": len(steps),
        "compared": group.num_compared,
        "mean_credit_size": group.credit_size,
        "teaches": group.teaches,
        "rescue": rescue_of(group),
        "set_aside": [
            {"rollout": rollout.rollout, "outcome": rollout.outcome, "stop": rollout.stop, "by": rollout.set_aside_by}
            for rollout in group.set_aside
        ],
    } | pairs


def _format_score(score: TaskSetScore, measure: str) -> str:
    tries = "" if score.rollouts == score.tasks else f" in {format_count(score.rollouts, 'rollout')}"
    shown = format_interval(score.value, score.interval, measure == "success")
    return f"{escape(shown)} over {format_count(score.tasks, 'task')}{tries}"


def _format_credit_bar(credit: float, reach: float) -> Text:
    """A bar to the right of the middle for positive credit, to the left for negative."""
    size = abs(credit) / reach if reach and math.isfinite(credit) else 0.0
    filled = max(round(HALF * min(size, 1.0)), 1 if credit else 0)
    left = "█" * filled if credit < 0 else ""
    right = "█" * filled if credit > 0 else ""
    style = PLUS if credit > 0 else MINUS
    return Text.assemble(
        f"{'':{HALF - len(left)}}", (left, style), ("│", "dim"), (right, style), f"{'':{HALF - len(right)}}"
    )


def _make_rollouts_table(group: PlayedGroup, shown: PlayedRollout, reach: float) -> Table:
    """The rollouts of a group, one mark per step: upwards for a positive advantage, downwards for a negative one."""
    comes_from = ["from"] if group.joined else []
    table = make_table("rollout", "outcome", "ended", "steps", "advantage, step by step", *comes_from, align="rrrrl")
    for member in group.members:
        origin = ""
        if member in group.joined:
            credit = ", ".join(format_signed(step.credit) for step in member.steps[:4])
            origin = f"{describe_origin(member)}, advantage {credit}{', …' if len(member.steps) > 4 else ''}"
        table.add_row(
            f"[bold]{member.rollout}[/]" if member is shown else str(member.rollout),
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
    marks = STANDING if credit > 0 else HANGING  # shows the sign without colours too
    return (marks[min(int(len(marks) * size), len(marks) - 1)], PLUS if credit > 0 else MINUS)


def _lay_out_step(step: PlayedStep, reach: float, tokens: Sequence[Text]) -> Group:
    """Observation, response, action and advantage of a step. `tokens` is the response with shades."""
    notes = [
        (f"  {step.flaw}" if step.flaw else "", MINUS),
        ("  cut off" if step.cut else "", MINUS),
        (f"  prompt cut by {format_count(step.prompt_cut, 'token')}" if step.prompt_cut else "", MINUS),
        (f"  reward {format_compact(step.reward)}" if step.reward else "", ""),
        (f", of which {format_compact(step.added)} by reward shaping" if step.added else "", ""),
    ]
    company = f"  compared with {describe_company(step.company)}" if step.company else ""
    credit = (f"advantage {format_signed(step.credit):>7} ", _format_credit_bar(step.credit, reach), (company, "dim"))
    lines = [
        Text(escape_recorded(step.observation), style="dim"),
        *(tokens or [Text(escape_recorded(step.words_beyond_action), style="italic")]),
        Text.assemble("> ", (escape_recorded(step.action), "bold"), *notes),
        Text.assemble(*credit),
        *(Text(f"channel {name} {format_signed(credit)}") for name, credit in step.channels.items()),
        Text(" "),
    ]
    return Group(*(line for line in lines if line))


# Shaded tokens, further channels, and pairs.

Palette = tuple[tuple[str, ...], tuple[str, ...]]
"""Styles of positive and of negative advantages, from the weakest shade to the strongest."""

# Text colour and background are both set, so the text is readable on any terminal.
MANY_COLOURS: Palette = (
    ("black on #dce9f8", "black on #b5d1f2", "black on #8ab6ea", "white on #2f6fbc", "white on #1a4f96"),
    ("black on #fbe6d2", "black on #f6c79c", "black on #efa565", "white on #b85209", "white on #8f3f06"),
)
SIXTEEN_COLOURS: Palette = (
    ("black on bright_blue",) * 2 + ("white on blue",) * 2 + ("bold white on blue",),
    ("black on bright_yellow",) * 2 + ("black on yellow",) * 2 + ("bold black on yellow",),
)
MAX_PAIRS = 12
"""Printed pairs of a rollout; more are counted."""


def _describe_shades(reach: float, palette: Palette | None) -> Text:
    if palette is None:
        return Text("advantage of tokens: printed before the tokens that have it; · if they do not train")
    positive, negative = palette
    ends = f" {format_signed(-reach)} ", f" {format_signed(reach)} "
    swatches = [("  " if style else " 0 ", style) for style in (*reversed(negative), "", *positive)]
    return Text.assemble("advantage of tokens", ends[0], *swatches, ends[1], ("  dim", "dim"), " does not train")


def lay_out_tokens(step: PlayedStep, texts: TokenTexts, reach: float, palette: Palette | None) -> list[Text]:
    """The response of a step with tokens shaded by their advantage, and how many of them train."""
    tokens = step.tokens
    if tokens is None or not tokens.ids:
        return []
    text = Text()
    for piece in shade_tokens(tokens, texts.cut(tokens.ids)):
        shown = escape_recorded(piece.text)
        if palette is not None:
            shade = 0 if piece.credit is None else choose_shade(piece.credit, reach)
            style = "dim" if piece.credit is None else ""
            text.append(shown, palette[shade < 0][abs(shade) - 1] if shade else style)
        else:
            number = "·" if piece.credit is None else format_signed(piece.credit)
            text.append(f"{' ' if text else ''}{number}«{shown.strip(' ')}»")
    return [text, Text(tokens.describe(), style="dim")]


def _describe_pairs(group: PlayedGroup, rollout: PlayedRollout) -> list[str]:
    """The pairs of a rollout, one line each; none if the loss reads no pairs."""
    if group.pairs is None:
        return []
    own = choose_pairs(group.pairs, task=group.task, rollout=rollout.rollout)
    if not own:
        return [f"rollout {rollout.rollout} is in none of the {len(group.pairs)} pairs of the task"]
    more = [f"… and {len(own) - MAX_PAIRS} more pairs"] if len(own) > MAX_PAIRS else []
    return [*(f"pair: {pair.describe()}" for pair in own[:MAX_PAIRS]), *more]


def _rollout_as_json(group: PlayedGroup, rollout: PlayedRollout, texts: TokenTexts) -> dict[str, Any]:
    bare = replace(rollout, steps=tuple(replace(step, tokens=None) for step in rollout.steps))
    data: dict[str, Any] = {"rollout": asdict(bare)}
    for step, row in zip(rollout.steps, data["rollout"]["steps"], strict=True):
        del row["tokens"]
        if not step.channels:
            del row["channels"]
        if step.tokens is not None:
            row["tokens"] = step.tokens.as_json(texts.cut(step.tokens.ids))
    if group.pairs is not None:
        data["pairs"] = [asdict(pair) for pair in choose_pairs(group.pairs, task=group.task, rollout=rollout.rollout)]
    if group.details_missing:
        data["details_missing"] = group.details_missing
    data["rescue"], data["underived"] = rescue_of(group), group.underived
    data["joined"] = [
        {name: getattr(member, name) for name in ("rollout", "origin", "outcome", "success", "source")}
        | {"credit": [step.credit for step in member.steps]}
        for member in group.joined
    ]
    return data


def _describe_rescue(group: PlayedGroup) -> list[str]:
    rescue = rescue_of(group)
    if rescue is None:
        return []
    lines = []
    if rescue.has_hint and (shown := rescue.hint):
        lines.append(f"with a hint in the prompt: rollout {shown.rollout} of update {shown.number} of {shown.task}")
    elif rescue.has_hint and not rescue.request_words:  # these words are printed on their own line
        lines.append("with a hint: not recorded which")
    if rescue.num_shaped:
        lines.append(f"rewards shaped: {describe_shaping(rescue)}")
    if rescue.size_without is not None:
        without, size = format_sizes(rescue)
        lines.append(f"mean |advantage| {without} without added rollouts and rewards, {size} with them")
    return lines
