"""The page of a run: everything about it in one file that opens anywhere."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

from groupwise.report import page_sections as sections
from groupwise.report.charts import draw_intervals
from groupwise.report.markup import PACKAGE, Html, render
from groupwise.report.number_format import (
    INTERVAL_LEVEL,
    NO_NUMBER,
    THIN_SPACE,
    TIMES,
    format_count,
    format_interval,
    format_number,
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
from groupwise.store.run_folder import CONFIG, JOURNAL
from groupwise.system.files import write_atomic
from groupwise.system.text import quote_line
from groupwise.training.evaluation.summary import RunVerdict, describe_when
from groupwise.training.run_reader import RunFolder

NAMES = {
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
NO_BREAK = "\N{NO-BREAK SPACE}"
MAX_FIELDS = 3
"""How many fields of a part the headline names."""
MAX_SETTING = 60
"""Characters of a setting's value that are shown."""


def render_page(folder: RunFolder, *, method: str, note: str = "") -> str:
    """The report of a run as HTML; the same folder gives the same bytes.

    Args:
        folder: the run.
        method: what its algorithm is called.
        note: what there is to add to that.
    """
    verdict = find_verdict(folder)
    last, first = sections.read_last_and_first(folder)
    content = {
        "families": _list_families(verdict),
        "events": _list_events(folder),
        "learning": sections.show_learning(folder, verdict),
        "time": sections.show_time(folder),
        "groups": sections.show_groups(folder, verdict, last),
        "rescued": sections.show_rescued(folder, verdict, last),
        "attempts": sections.show_attempts(folder, first, last),
        "settings": folder.config_text.strip().splitlines(keepends=True),
    }
    env = name_kind(folder.setting("env"))
    styles = ["page.css", "details.css"] if sections.has_details([*first, *last]) else ["page.css"]
    return render(
        "run.html.j2",
        **content,
        title=f"{method} on {env}" if env else method,
        name=folder.name,
        style=read_styles(styles),
        heading=method,
        env=env,
        facts=_list_facts(folder, method, note),
        links={name: words for name, words in NAMES.items() if content[name]},
        journal=JOURNAL,
        config=CONFIG,
        updates=folder.updates,
        verdict=None if verdict is None else _show_verdict(verdict),
        is_share=verdict is not None and verdict.measure == "success",
        sampled=find_sampling_success(folder) if verdict is None else None,
        penalised=describe_penalties(find_penalised_updates(folder), len(folder.updates)),
        percent_sign=f"{THIN_SPACE}%",
        describe_when=describe_when,
    )


def write_page(path: Path, text: str) -> int:
    """Write a page, whole or not at all. Returns its bytes."""
    content = text.encode("utf-8", errors="replace")  # half a surrogate pair is no UTF-8
    with write_atomic(path, advice="choose another file with --out") as draft:
        draft.write_bytes(content)
    return len(content)


def read_styles(names: Sequence[str]) -> Html:
    """Style sheets of this package, one after another."""
    return Html("".join(resources.files(PACKAGE).joinpath(name).read_text(encoding="utf-8") for name in names))


def _list_facts(folder: RunFolder, method: str, note: str) -> dict[str, str]:
    """What was trained, on what, with which model."""
    seed, lag = folder.setting("seed"), describe_lag(folder)
    planned, made = folder.setting("training.updates"), len(folder.updates)
    updates = f"{made:,}" if planned in (None, made) else f"{made:,} of {planned:,}"
    tasks, tries = folder.setting("training.tasks"), folder.setting("rollout.plan.attempts")
    panels = ", ".join(f"{split}{NO_BREAK}{shorten_hash(digest)}" for split, digest in folder.panels.items())
    return {
        "algorithm": f"{method} ({note})" if note else method,
        "environment": describe_part(folder.setting("env")),
        **({"panels": panels} if panels else {}),
        "model": describe_part(folder.setting("model")),
        "seed": NO_NUMBER if seed is None else str(seed),
        "updates": f"{updates}, each of {tasks} tasks {TIMES} {tries} attempts" if tasks and tries else updates,
        **({"attempts played": lag} if lag else {}),
        "time": format_seconds(sum(sum_stage_seconds(folder).values()) or None),
    }


def _show_verdict(verdict: RunVerdict) -> dict[str, Any]:
    """The scores before and after, drawn, and in a sentence."""
    scores = [(name, getattr(verdict, name)) for name in ("before", "after") if getattr(verdict, name) is not None]
    plot = draw_intervals(scores, is_share=verdict.measure == "success")
    return {"scores": scores, "plot": plot, "sentence": write_verdict_sentence(verdict)}


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
    far = f" by {format_number(100 * abs(change), 1)} points" if verdict.measure == "success" and change else ""
    clear = "lie apart" if verdict.is_clear else "overlap, so this may be chance"
    return f"{what} on {panel}{tries} {moved}{far}; the {INTERVAL_LEVEL} intervals {clear}."


def _list_families(verdict: RunVerdict | None) -> dict[str, Any] | None:
    """Success by family of tasks, before and after."""
    if verdict is None or not verdict.families:
        return None
    is_share = verdict.measure == "success"
    lead = "The same evaluation, by kind of task."
    if verdict.before is not None:
        before, after = describe_when(verdict.before), describe_when(verdict.after)
        lead = f"The same evaluations, by kind of task. Grey: {before}; blue: {after}."
    by_family = [
        {name: score for name, score in (("before", family.before), ("after", family.after)) if score is not None}
        for family in verdict.families
    ]
    high = 1.0 if is_share else max(score.value for scores in by_family for score in scores.values()) or 1.0
    rows = []
    for family, scores in zip(verdict.families, by_family, strict=True):
        change = family.after.value - family.before.value if family.before else None
        bars = [
            (
                name,
                100 * min(max(score.value / high, 0.0), 1.0),
                format_interval(score.value, score.interval, is_share),
            )
            for name, score in scores.items()
        ]
        rows.append(
            {
                "name": family.name,
                "tasks": family.after.tasks,
                "bars": bars,
                "before": family.before and family.before.value,
                "after": family.after.value,
                "change": format_signed(change and 100 * change, 1) if is_share else format_signed(change),
            }
        )
    return {"lead": lead, "rows": rows}


def _list_events(folder: RunFolder) -> list[tuple[int, str, str, str]]:
    """Alarms and changed settings, by update."""
    alarms = [
        (alarm.number, "stopped by" if alarm.action == "stop" else "alarm", alarm.name, f"{alarm.sentence}.")
        for alarm in folder.journal.alarms()
    ]

    def show(value: object) -> str:
        return "not set" if value is None else quote_line(str(value), limit=MAX_SETTING)

    changes = [
        (change.number, "changed", change.path, f"was {show(change.before)}, is {show(change.after)}.")
        for change in folder.journal.changes()
    ]
    return sorted([*alarms, *changes], key=lambda event: event[0])


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
