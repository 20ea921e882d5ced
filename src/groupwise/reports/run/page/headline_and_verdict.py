"""The top of the page: what was trained, the verdict on it in numbers and by family, and what happened on the way."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from groupwise.core.text.safe_text import quote_line
from groupwise.evaluation.verdict import FamilyScores, PanelScore, RunVerdict, describe_when
from groupwise.reports.run.number_format import (
    INTERVAL_LEVEL,
    NO_NUMBER,
    THIN_SPACE,
    TIMES,
    format_compact,
    format_count,
    format_number,
    format_percent,
    format_seconds,
    format_signed,
    shorten_hash,
)
from groupwise.reports.run.overview import describe_lag, describe_penalties, find_penalised_updates, sum_stage_seconds
from groupwise.reports.run.page.curves import format_interval
from groupwise.reports.run.page.marks import draw_bar, draw_intervals
from groupwise.reports.run.page.markup import Html, join, tag
from groupwise.reports.run.page.sections import make_section
from groupwise.reports.run.run_folder import RunFolder
from groupwise.reports.run.verdict import find_sampling_success

NO_BREAK = "\N{NO-BREAK SPACE}"
MAX_FIELDS = 3
"""How many fields of a part the headline names."""
MAX_SETTING = 60
"""Characters of a setting's value that are shown."""


def write_headline(folder: RunFolder, method: str, note: str) -> Html:
    """What was trained, on what, with which model."""
    env = name_kind(folder.setting("env"))
    facts = {
        "algorithm": f"{method} ({note})" if note else method,
        "environment": describe_part(folder.setting("env")),
        **({"panels": describe_panels(folder.panels)} if folder.panels else {}),
        "model": describe_part(folder.setting("model")),
        "seed": NO_NUMBER if folder.setting("seed") is None else str(folder.setting("seed")),
        "updates": describe_updates(folder),
        **({"attempts played": lag} if (lag := describe_lag(folder)) else {}),
        "time": format_seconds(sum(sum_stage_seconds(folder).values()) or None),
    }
    return tag(
        "header",
        tag("p", "groupwise", tag("span", folder.name), class_="eyebrow"),
        tag("h1", tag("span", method), f" on {env}" if env else None),
        tag("dl", [tag("div", tag("dt", name), tag("dd", value)) for name, value in facts.items()], class_="facts"),
        class_="headline",
    )


def write_verdict_section(folder: RunFolder, verdict: RunVerdict | None) -> Html:
    """The verdict, and the same by family."""
    penalised = describe_penalties(find_penalised_updates(folder), len(folder.updates))
    warning = tag("p", penalised, class_="sentence") if penalised else None
    if verdict is None:
        return tag("section", _write_sampling_success(folder), warning, id="verdict", class_="verdict")
    big = tag("div", _write_numbers(verdict), _draw_intervals(verdict), class_="split")
    return tag(
        "section",
        big,
        tag("p", write_verdict_sentence(verdict), class_="sentence"),
        warning,
        id="verdict",
        class_="verdict",
    )


def write_families_section(verdict: RunVerdict | None) -> Html | None:
    """Success by family of tasks, before and after."""
    if verdict is None or not verdict.families:
        return None
    names = ("family", "tasks", "", "before", "after", "change")
    head = tag("tr", [tag("th", name, scope="col") for name in names])
    high = 1.0 if verdict.measure == "success" else max(_largest_value(family) for family in verdict.families) or 1.0
    rows = [_write_family(family, verdict, high) for family in verdict.families]
    table = tag("table", tag("thead", head), tag("tbody", rows), class_="families")
    lead = "The same evaluation, by kind of task."
    if verdict.before is not None:
        before, after = describe_when(verdict.before), describe_when(verdict.after)
        lead = f"The same evaluations, by kind of task. Grey: {before}; blue: {after}."
    return make_section("families", "By family", tag("div", table, class_="scroll"), lead=lead)


def write_events_section(folder: RunFolder) -> Html | None:
    """Alarms and changed settings, by update; None where there were none."""
    alarms = [
        (alarm.number, "stopped by" if alarm.action == "stop" else "alarm", alarm.name, f"{alarm.sentence}.")
        for alarm in folder.journal.alarms()
    ]
    changes = [
        (
            change.number,
            "changed",
            change.path,
            f"was {_show_setting(change.before)}, is {_show_setting(change.after)}.",
        )
        for change in folder.journal.changes()
    ]
    events = sorted([*alarms, *changes], key=lambda event: event[0])
    if not events:
        return None
    lines = [
        tag("li", f"After update {number}, {kind} ", tag("code", name), f": {words}")
        for number, kind, name, words in events
    ]
    lead = "Alarms that were raised, and settings that are others from the next update on."
    return make_section("events", "On the way", tag("ul", lines, class_="events"), lead=lead)


def write_verdict_sentence(verdict: RunVerdict) -> str:
    """The verdict in a sentence."""
    before, after = verdict.before, verdict.after
    what = "Success" if verdict.measure == "success" else "Mean outcome"
    panel = f"{format_count(after.tasks, 'task')} of the {verdict.split} panel"
    tries = "" if after.attempts == after.tasks else f" ({format_count(after.attempts, 'attempt')})"
    if before is None:
        return f"{what} on {panel}{tries}, {describe_when(after)}. There is no second evaluation to compare it with."
    if not verdict.is_one_panel:
        evaluations = f"{describe_when(before)} and {describe_when(after)}"
        return f"{what} {evaluations}, on different tasks: the two cannot be compared."
    change = after.value - before.value
    moved = "did not change" if not change else "rose" if change > 0 else "fell"
    far = f" by {format_number(100 * abs(change), 1)} points" if verdict.measure == "success" else ""
    clear = (
        f"the {INTERVAL_LEVEL} intervals lie apart"
        if verdict.is_clear
        else f"the {INTERVAL_LEVEL} intervals overlap, so this may be chance"
    )
    return f"{what} on {panel}{tries} {moved}{far if change else ''}; {clear}."


def describe_panels(panels: Mapping[str, str]) -> str:
    """The run's panels by their hashes, cut short.

    >>> describe_panels({"train": "0123456789abcdef"})
    'train\\xa00123456789ab'
    """
    return ", ".join(f"{split}{NO_BREAK}{shorten_hash(digest)}" for split, digest in panels.items())


def describe_part(part: Any) -> str:
    """A part in a few words: its kind and its first plain fields.

    >>> describe_part({"kind": "tiny", "hidden": 128, "layers": 3})
    'tiny (hidden\\xa0128, layers\\xa03)'
    """
    if not isinstance(part, Mapping):
        return NO_NUMBER
    plain = [
        f"{name} {value}".replace("_", NO_BREAK).replace(" ", NO_BREAK)
        for name, value in part.items()
        if name != "kind" and isinstance(value, int | float | str) and not isinstance(value, bool) and value != ""
    ]
    return f"{name_kind(part)} ({', '.join(plain[:MAX_FIELDS])})" if plain else name_kind(part)


def name_kind(part: Any) -> str:
    """The kind of a part, without the module of one from elsewhere."""
    kind = part.get("kind", "") if isinstance(part, Mapping) else ""
    return str(kind).rpartition(":")[2]


def describe_updates(folder: RunFolder) -> str:
    """How many updates were made, of how many, and how large they are."""
    planned, made = folder.setting("training.updates"), len(folder.updates)
    words = f"{made:,}" if planned in (None, made) else f"{made:,} of {planned:,}"
    tasks, tries = folder.setting("training.tasks"), folder.setting("rollout.plan.attempts")
    return f"{words}, each of {tasks} tasks {TIMES} {tries} attempts" if tasks and tries else words


def _write_numbers(verdict: RunVerdict) -> Html:
    scores = [score for score in (verdict.before, verdict.after) if score is not None]
    pieces: list[Html] = []
    for place, score in enumerate(scores):
        if place:
            pieces.append(tag("span", "→", class_="arrow"))
        pieces.append(
            tag(
                "span",
                tag("span", _format_value(score.value, verdict), class_="big"),
                tag("span", describe_when(score), class_="when"),
                tag("span", _format_bounds(score, verdict), class_="when"),
                class_="after" if score is verdict.after else "before",
            )
        )
    return tag("p", pieces, class_="numbers")


def _draw_intervals(verdict: RunVerdict) -> Html:
    scores = [("before", verdict.before), ("after", verdict.after)]
    shown = [(name, score) for name, score in scores if score is not None]
    return tag("div", draw_intervals(shown, is_share=verdict.measure == "success"), class_="plot")


def _write_family(family: FamilyScores, verdict: RunVerdict, high: float) -> Html:
    before, after = family.before, family.after
    is_share = verdict.measure == "success"
    words = [format_interval(score, is_share=is_share) for score in (before, after) if score]
    bars = [draw_bar(before.value / high, "before", words[0])] if before else []
    bars.append(draw_bar(after.value / high, "after", words[-1]))
    change = NO_NUMBER
    if before:
        moved = after.value - before.value
        change = format_signed(100 * moved, 1) if is_share else format_signed(moved)
    return tag(
        "tr",
        tag("th", family.name, scope="row"),
        tag("td", f"{after.tasks:,}"),
        tag("td", bars, class_="bars"),
        tag("td", _format_value(before.value, verdict) if before else NO_NUMBER),
        tag("td", _format_value(after.value, verdict), class_="strong"),
        tag("td", change),
    )


def _format_value(value: float, verdict: RunVerdict) -> str:
    return format_percent(value) if verdict.measure == "success" else format_compact(value)


def _format_bounds(score: PanelScore, verdict: RunVerdict) -> str:
    low, high = score.interval
    if verdict.measure == "success":
        return f"{format_number(100 * low, 1)} to {format_number(100 * high, 1)}{THIN_SPACE}%"
    return f"{format_compact(low)} to {format_compact(high)}"


def _largest_value(family: FamilyScores) -> float:
    return max(score.value for score in (family.before, family.after) if score is not None)


def _write_sampling_success(folder: RunFolder) -> Html:
    if not folder.updates:
        return join(
            tag("p", "No update yet", class_="numbers quiet"),
            tag("p", "The run has begun, or was stopped, before its first update was written.", class_="sentence"),
        )
    sampled = find_sampling_success(folder)
    if sampled is None:
        return tag(
            "p", "The run was not evaluated, and its environment does not say what success is.", class_="sentence"
        )
    shown = [
        tag("span", tag("span", format_percent(share), class_="big"), tag("span", words, class_="when"))
        for share, words in zip(sampled, ("first update", "last update"), strict=True)
    ]
    shown = [shown[0], tag("span", "→", class_="arrow"), shown[1]] if len(folder.updates) > 1 else shown[:1]
    return join(
        tag("p", shown, class_="numbers quiet"),
        tag(
            "p",
            "Success while sampling. The run was not evaluated on a fixed panel: every update has other tasks, "
            "so this is no verdict.",
            class_="sentence",
        ),
    )


def _show_setting(value: object) -> str:
    return "not set" if value is None else quote_line(str(value), limit=MAX_SETTING)
