"""The page: everything about a run in one file that opens anywhere."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib import resources
from pathlib import Path
from typing import Any

from groupwise.report import page_sections as sections
from groupwise.report.charts import Curve, draw_bands_card, draw_bar, draw_curve_card, draw_intervals, format_interval
from groupwise.report.groups import PlayedGroup
from groupwise.report.markup import Html, join, tag
from groupwise.report.number_format import (
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
from groupwise.report.overview import (
    describe_lag,
    describe_penalties,
    find_penalised_updates,
    find_sampling_success,
    find_verdict,
    sum_stage_seconds,
)
from groupwise.report.page_sections import find_update_span, has_details, make_metric_curve, make_section
from groupwise.report.rescue import (
    Rescue,
    describe_guidance,
    describe_recalled,
    describe_shaping,
    find_recent_rescues,
    format_sizes,
    has_rescues,
)
from groupwise.store.run_folder import JOURNAL
from groupwise.system.errors import FileError
from groupwise.system.text import quote_line
from groupwise.training.evaluation.summary import FamilyScores, PanelScore, RunVerdict, describe_when
from groupwise.training.run_reader import RunFolder

# Nothing is fetched and nothing runs, whatever was recorded: the browser holds the page to it.
POLICY = "default-src 'none'; style-src 'unsafe-inline'"
PACKAGE = "groupwise.report"
NAMES = {
    "verdict": "Verdict",
    "families": "Families",
    "events": "On the way",
    "learning": "Learning",
    "time": "Time",
    "groups": "Groups",
    "rescued": "Rescued groups",
    "attempts": "Attempts",
    "settings": "Settings",
}
"""What the sections are called in the list at the top."""


def render_page(folder: RunFolder, *, method: str, note: str = "") -> str:
    """The report of a run as HTML; the same folder gives the same bytes.

    Args:
        folder: the run.
        method: what its algorithm is called.
        note: what there is to add to that.
    """
    verdict = find_verdict(folder)
    last, first = sections.read_last_and_first(folder)
    by_name = {
        "verdict": write_verdict_section(folder, verdict),
        "families": write_families_section(verdict),
        "events": write_events_section(folder),
        "learning": sections.write_learning_section(folder, verdict),
        "time": sections.write_time_section(folder),
        "groups": sections.write_groups_section(folder, verdict, last),
        "rescued": write_rescued_section(folder, verdict, last),
        "attempts": sections.write_attempts_section(folder, first, last),
        "settings": sections.write_settings_section(folder),
    }
    links = [
        tag("a", NAMES[name], href=f"#{name}") for name, content in by_name.items() if content and name != "verdict"
    ]
    body = tag(
        "main",
        write_headline(folder, method, note),
        tag("nav", links, aria_label="Sections"),
        list(filter(None, by_name.values())),
        tag("footer", "Read from ", tag("code", JOURNAL), " by ", tag("b", "groupwise report"), "."),
    )
    env = name_kind(folder.setting("env"))
    styles = ("page.css", "details.css") if has_details([*first, *last]) else ("page.css",)
    return wrap_page(f"{method} on {env}" if env else method, folder.name, body, [(PACKAGE, name) for name in styles])


def write_page(path: Path, text: str) -> int:
    """Write a page beside its place and rename it: a reader sees the old one or the new one. Returns its bytes."""
    content = text.encode("utf-8", errors="replace")  # half a surrogate pair is no UTF-8
    target = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        target.write_bytes(content)
        os.replace(target, path)
    except OSError as error:
        raise FileError(f"{path}: cannot be written ({error.strerror}); choose another file with --out") from None
    finally:
        with suppress(OSError):  # where nothing could be written there is nothing to remove
            target.unlink()
    return len(content)


def wrap_page(title: str, name: str, body: Html, styles: Sequence[tuple[str, str]]) -> str:
    """A whole page: its head, with style sheets that are given by package and file, and its body."""
    style = "".join(resources.files(package).joinpath(file).read_text(encoding="utf-8") for package, file in styles)
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", http_equiv="Content-Security-Policy", content=POLICY),
        tag("meta", name="color-scheme", content="light dark"),
        tag("title", f"{title}: {name}"),
        tag("style", Html(style)),
    )
    return join(Html("<!doctype html>\n"), tag("html", head, tag("body", body), lang="en"), "\n")


# The top of the page: what was trained, the verdict on it in numbers and by family, and what happened on the way.

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


# The section on rescued groups: how many there were, what was done for them, and what it did to their credit.

MAX_ROWS = 12
"""How many rescued groups are listed."""
CURVES = {
    "rollout/zero_spread": "Tasks without spread",
    "replay/recalled": "Recalled attempts",
    "replay/age": "Age of what was recalled",
    "replay/log_ratio": "Distance of what was recalled",
    "guidance/groups": "Groups with guidance",
    "guidance/success": "Success with guidance",
    "shaping/groups": "Shaped groups",
}
"""The metrics that have a curve here, where the run has them, and what they are called."""


def write_rescued_section(folder: RunFolder, verdict: RunVerdict | None, last: Sequence[PlayedGroup]) -> Html | None:
    """What became of the groups that would have taught nothing; None where nothing was done for any."""
    if not has_rescues(folder):
        return None
    curves: list[Curve] = [
        make_metric_curve(folder, name, title, verdict)
        for name, title in CURVES.items()
        if any(folder.metrics.get(name, {}).values())
    ]
    shares = _find_shares(folder)
    meaning = (
        "Share of groups by where their credit comes from. Groups with guidance are counted too: where their attempts "
        "differ, they have signal by themselves."
    )
    bands = (
        [draw_bands_card("Groups with signal", meaning, shares, find_update_span(folder, verdict))] if shares else []
    )
    lead = (
        "Where all attempts at a task do equally well, comparing them teaches nothing. Such a group is rescued by past "
        "attempts that join it, by rewards that rank it, or by a further group with guidance."
    )
    return make_section(
        "rescued",
        "Rescued groups",
        tag("div", bands, [draw_curve_card(curve) for curve in curves], class_="cards"),
        _write_table(find_recent_rescues(folder, last, max_rescues=MAX_ROWS)),
        lead=lead,
    )


def _find_shares(folder: RunFolder) -> dict[str, dict[int, float]]:
    """The share of groups that had signal of their own, that were rescued, and that had none, by update."""
    signal, rescued = (folder.metrics.get(f"credit/groups_{name}", {}) for name in ("with_signal", "rescued"))
    numbers = sorted(signal.keys() & rescued.keys())
    if not numbers:
        return {}
    return {
        "by themselves": {number: signal[number] - rescued[number] for number in numbers},
        "rescued": {number: rescued[number] for number in numbers},
        "without": {number: 1 - signal[number] for number in numbers},
    }


def _write_table(rescues: Sequence[tuple[int, Rescue]]) -> Html | None:
    if not rescues:
        return None
    names = ("update", "task", "recalled", "shaped", "guidance", "mean |credit|")
    head = tag("tr", [tag("th", name, scope="col") for name in names])
    rows = [_write_row(number, rescue) for number, rescue in rescues]
    note = (
        "Mean size of the credit of the group's own steps: computed again without what joined or was added, and as it "
        "was. A group that is new because of its guidance has no number before."
    )
    return tag(
        "div",
        tag("h3", "The newest of them"),
        tag("div", tag("table", tag("thead", head), tag("tbody", rows), class_="rescues"), class_="scroll"),
        tag("p", note, class_="meaning"),
        class_="newest",
    )


def _write_row(number: int, rescue: Rescue) -> Html:
    without, size = format_sizes(rescue)
    why = "; ".join(dict.fromkeys(source.why for source in rescue.recalled))
    return tag(
        "tr",
        tag("th", str(number), scope="row"),
        tag("td", tag("code", rescue.task)),
        tag("td", describe_recalled(rescue), title=why or None),
        tag("td", describe_shaping(rescue)),
        tag("td", describe_guidance(rescue)),
        tag("td", f"{without} → ", tag("b", size)),
    )
