"""How the page opens: what was trained, and what came of it in one line."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

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
from groupwise.reports.run.overview import find_penalised, penalty_sentence, stage_seconds
from groupwise.reports.run.page.curves import interval_words
from groupwise.reports.run.page.marks import bar, intervals
from groupwise.reports.run.page.markup import Html, join, tag
from groupwise.reports.run.page.sections import section
from groupwise.reports.run.run_folder import RunFolder
from groupwise.reports.run.verdict import Family, Score, Verdict, rollout_success, when

NO_BREAK = "\N{NO-BREAK SPACE}"
MOST_FIELDS = 3
"""How many fields of a part the headline names."""


def headline(folder: RunFolder, method: str, note: str) -> Html:
    """What was trained, on what, with which model."""
    env = kind_of(folder.setting("env"))
    facts = {
        "algorithm": f"{method} ({note})" if note else method,
        "environment": part_words(folder.setting("env")),
        **({"panels": panel_words(folder.panels)} if folder.panels else {}),
        "model": part_words(folder.setting("model")),
        "seed": NO_NUMBER if folder.setting("seed") is None else str(folder.setting("seed")),
        "updates": updates_words(folder),
        "time": format_seconds(sum(stage_seconds(folder).values()) or None),
    }
    return tag(
        "header",
        tag("p", "groupwise", tag("span", folder.name), class_="eyebrow"),
        tag("h1", tag("span", method), f" on {env}" if env else None),
        tag("dl", [tag("div", tag("dt", name), tag("dd", value)) for name, value in facts.items()], class_="facts"),
        class_="headline",
    )


def verdict_section(folder: RunFolder, found: Verdict | None) -> Html:
    """The verdict, and the same by family."""
    penalised = penalty_sentence(find_penalised(folder), len(folder.updates))
    warning = tag("p", penalised, class_="sentence") if penalised else None
    if found is None:
        return tag("section", _without_evaluation(folder), warning, id="verdict", class_="verdict")
    big = tag("div", _numbers(found), _plot(found), class_="split")
    return tag("section", big, tag("p", sentence(found), class_="sentence"), warning, id="verdict", class_="verdict")


def families_section(found: Verdict | None) -> Html | None:
    """Success by family of tasks, before and after."""
    if found is None or not found.families:
        return None
    names = ("family", "tasks", "", "before", "after", "change")
    head = tag("tr", [tag("th", name, scope="col") for name in names])
    high = 1.0 if found.measure == "success" else max(_largest(family) for family in found.families) or 1.0
    rows = [_family(family, found, high) for family in found.families]
    table = tag("table", tag("thead", head), tag("tbody", rows), class_="families")
    lead = "The same evaluation, by kind of task."
    if found.before is not None:
        lead = f"The same evaluations, by kind of task. Grey: {when(found.before)}; blue: {when(found.after)}."
    return section("families", "By family", tag("div", table, class_="scroll"), lead=lead)


def sentence(found: Verdict) -> str:
    """The verdict in a sentence."""
    before, after = found.before, found.after
    what = "Success" if found.measure == "success" else "Mean outcome"
    panel = f"{format_count(after.tasks, 'task')} of the {found.split} panel"
    tries = "" if after.attempts == after.tasks else f" ({format_count(after.attempts, 'attempt')})"
    if before is None:
        return f"{what} on {panel}{tries}, {when(after)}. There is no second evaluation to compare it with."
    if not found.is_one_panel:
        return f"{what} {when(before)} and {when(after)}, on different tasks: the two cannot be compared."
    change = after.value - before.value
    moved = "did not change" if not change else "rose" if change > 0 else "fell"
    far = f" by {format_number(100 * abs(change), 1)} points" if found.measure == "success" else ""
    clear = (
        f"the {INTERVAL_LEVEL} intervals lie apart"
        if found.is_clear
        else f"the {INTERVAL_LEVEL} intervals overlap, so this may be chance"
    )
    return f"{what} on {panel}{tries} {moved}{far if change else ''}; {clear}."


def panel_words(panels: Mapping[str, str]) -> str:
    """The run's panels by their hashes, cut short.

    >>> panel_words({"train": "0123456789abcdef"})
    'train\\xa00123456789ab'
    """
    return ", ".join(f"{split}{NO_BREAK}{shorten_hash(found)}" for split, found in panels.items())


def part_words(part: Any) -> str:
    """A part in a few words: its kind and its first plain fields.

    >>> part_words({"kind": "tiny", "hidden": 128, "layers": 3})
    'tiny (hidden\\xa0128, layers\\xa03)'
    """
    if not isinstance(part, Mapping):
        return NO_NUMBER
    plain = [
        f"{name} {value}".replace("_", NO_BREAK).replace(" ", NO_BREAK)
        for name, value in part.items()
        if name != "kind" and isinstance(value, int | float | str) and not isinstance(value, bool) and value != ""
    ]
    return f"{kind_of(part)} ({', '.join(plain[:MOST_FIELDS])})" if plain else kind_of(part)


def kind_of(part: Any) -> str:
    """The kind of a part, without the module of one from elsewhere."""
    kind = part.get("kind", "") if isinstance(part, Mapping) else ""
    return str(kind).rpartition(":")[2]


def updates_words(folder: RunFolder) -> str:
    """How many updates were made, of how many, and how large they are."""
    planned, made = folder.setting("training.updates"), len(folder.updates)
    words = f"{made:,}" if planned in (None, made) else f"{made:,} of {planned:,}"
    tasks, tries = folder.setting("training.tasks"), folder.setting("rollout.plan.attempts")
    return f"{words}, each of {tasks} tasks {TIMES} {tries} attempts" if tasks and tries else words


def _numbers(found: Verdict) -> Html:
    scores = [score for score in (found.before, found.after) if score is not None]
    pieces: list[Html] = []
    for place, score in enumerate(scores):
        if place:
            pieces.append(tag("span", "→", class_="arrow"))
        pieces.append(
            tag(
                "span",
                tag("span", _value(score.value, found), class_="big"),
                tag("span", when(score), class_="when"),
                tag("span", _interval(score, found), class_="when"),
                class_="after" if score is found.after else "before",
            )
        )
    return tag("p", pieces, class_="numbers")


def _plot(found: Verdict) -> Html:
    scores = [("before", found.before), ("after", found.after)]
    shown = [(name, score) for name, score in scores if score is not None]
    return tag("div", intervals(shown, is_share=found.measure == "success"), class_="plot")


def _family(family: Family, found: Verdict, high: float) -> Html:
    before, after = family.before, family.after
    is_share = found.measure == "success"
    words = [interval_words(score, is_share=is_share) for score in (before, after) if score]
    bars = [bar(before.value / high, "before", words[0])] if before else []
    bars.append(bar(after.value / high, "after", words[-1]))
    change = NO_NUMBER
    if before:
        moved = after.value - before.value
        change = format_signed(100 * moved, 1) if is_share else format_signed(moved)
    return tag(
        "tr",
        tag("th", family.name, scope="row"),
        tag("td", f"{after.tasks:,}"),
        tag("td", bars, class_="bars"),
        tag("td", _value(before.value, found) if before else NO_NUMBER),
        tag("td", _value(after.value, found), class_="strong"),
        tag("td", change),
    )


def _value(value: float, found: Verdict) -> str:
    return format_percent(value) if found.measure == "success" else format_compact(value)


def _interval(score: Score, found: Verdict) -> str:
    low, high = score.interval
    if found.measure == "success":
        return f"{format_number(100 * low, 1)} to {format_number(100 * high, 1)}{THIN_SPACE}%"
    return f"{format_compact(low)} to {format_compact(high)}"


def _largest(family: Family) -> float:
    return max(score.value for score in (family.before, family.after) if score is not None)


def _without_evaluation(folder: RunFolder) -> Html:
    if not folder.updates:
        return join(
            tag("p", "No update yet", class_="numbers quiet"),
            tag("p", "The run has begun, or was stopped, before its first update was written.", class_="sentence"),
        )
    sampled = rollout_success(folder)
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
