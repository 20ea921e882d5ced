"""The sections of the page, in the order in which they are read."""

from __future__ import annotations

import math
from collections.abc import Sequence

from groupwise.core.run_paths import CONFIG
from groupwise.evaluation.verdict import RunVerdict
from groupwise.reports.run.goals import GoalLookup
from groupwise.reports.run.number_format import (
    INTERVAL_LEVEL,
    format_compact,
    format_count,
    format_percent,
    format_seconds,
)
from groupwise.reports.run.overview import count_groups, has_success, sum_stage_seconds
from groupwise.reports.run.page.curves import Curve, draw_curve_card
from groupwise.reports.run.page.details import TokenShades, find_channel_reaches
from groupwise.reports.run.page.dialogue import Scales, write_group
from groupwise.reports.run.page.marks import draw_histogram, draw_stacked_bar
from groupwise.reports.run.page.markup import Html, join, tag
from groupwise.reports.run.read_groups import read_groups
from groupwise.reports.run.response_text import TokenTexts
from groupwise.reports.run.run_folder import RunFolder
from groupwise.reports.run.update_groups import PlayedGroup, describe_missing_details, describe_underived
from groupwise.training.metrics.metric import SHARE
from groupwise.training.metrics.table import find_metric

MAIN_CURVES = {
    "rollout/success": "Success",
    "rollout/return": "Return",
    "rollout/steps": "Steps",
    "rollout/valid": "Well-formed, accepted actions",
    "rollout/entropy": "Entropy",
    "loss/entropy": "Entropy (learner)",
    "loss/total": "Loss",
    "learner/grad_norm": "Gradient",
    "loss/kl_to_reference": "KL to the reference",
}
"""The metrics that have a curve of their own, where the run has them, and what they are called."""
NUM_TASKS = 3
"""Tasks shown of an update."""


def make_section(name: str, title: str, *content: Html | list[Html] | str | None, lead: str = "") -> Html:
    """A section with its title and a sentence on what it shows."""
    return tag("section", tag("h2", title), tag("p", lead, class_="lead") if lead else None, *content, id=name)


def write_learning_section(folder: RunFolder, verdict: RunVerdict | None) -> Html | None:
    """The curves that say how learning went; all further metrics in a table."""
    curves = [
        make_metric_curve(folder, name, title, verdict)
        for name, title in MAIN_CURVES.items()
        if folder.metrics.get(name) and (name != "rollout/success" or has_success(folder))
    ]
    if not curves:
        return None
    lead = "Measured on the attempts that each update was made from, sampled from the tasks of training."
    scores = verdict is not None and verdict.measure == "success" and "rollout/success" in folder.metrics
    if scores:
        lead += f" Open dots are evaluations with their {INTERVAL_LEVEL} intervals."
    return make_section(
        "learning",
        "How it learnt",
        tag("div", [draw_curve_card(curve) for curve in curves], class_="cards"),
        _write_metric_table(folder),
        lead=lead,
    )


def write_time_section(folder: RunFolder) -> Html | None:
    """Where the time of all updates went."""
    stages = sum_stage_seconds(folder)
    whole = sum(stages.values())
    if not whole:
        return None
    rows = [
        tag(
            "tr",
            tag("th", tag("i", class_=f"swatch shade{min(place, 5)}"), name, scope="row"),
            tag("td", format_seconds(amount)),
            tag("td", format_seconds(amount / max(len(folder.updates), 1))),
            tag("td", format_percent(amount / whole)),
        )
        for place, (name, amount) in enumerate(stages.items())
    ]
    head = tag("tr", [tag("th", name, scope="col") for name in ("stage", "in all", "an update", "share")])
    lead = f"{format_seconds(whole)} over {format_count(len(folder.updates), 'update')}, evaluations not counted."
    table = tag("table", tag("thead", head), tag("tbody", rows))
    return make_section(
        "time", "Where the time went", draw_stacked_bar(stages), tag("div", table, class_="narrow"), lead=lead
    )


def write_groups_section(folder: RunFolder, verdict: RunVerdict | None, last: Sequence[PlayedGroup]) -> Html | None:
    """What the groups were like over the updates, and how the credit of the last one is distributed."""
    counts = count_groups(folder)
    if not counts:
        return None
    span = find_update_span(folder, verdict)
    curves = [
        Curve(
            span=span,
            title="Groups without spread",
            meaning="Share of tasks whose attempts all had the same outcome: between them there is nothing to choose.",
            points=[(count.number, count.equal_share) for count in counts],
            is_share=True,
        ),
        Curve(
            span=span,
            title="Steps compared",
            meaning="Share of steps that stood in a group with somebody else.",
            points=sorted(folder.metrics.get("credit/compared", {}).items()),
            is_share=True,
        ),
    ]
    own = sorted(folder.metrics.get("credit/own_rollout_only", {}).items())
    if any(value for _, value in own):
        meaning = "Fraction of the compared steps that have no other rollout in any of their groups."
        curves.append(
            Curve(span=span, title="Compared with their own rollout only", meaning=meaning, points=own, is_share=True)
        )
    sizes = [(count.number, count.mean_size) for count in counts]
    lead = "Credit comes from comparing attempts at one task. Where they do not differ, nothing is learnt."
    if len({size for _, size in sizes}) == 1:
        lead += f" Every group has {format_compact(sizes[0][1])} attempts."
    else:
        meaning = "Mean attempts at a task that were compared with one another."
        curves.append(Curve(span=span, title="Attempts of a group", meaning=meaning, points=sizes))
    shown = [draw_curve_card(curve) for curve in curves if curve.points]
    shown += [_draw_credit_card(folder, last)] if any(group.steps for group in last) else []
    return make_section(
        "groups",
        "What was compared",
        tag("div", shown, class_="cards"),
        lead=lead,
    )


def write_attempts_section(folder: RunFolder, first: Sequence[PlayedGroup], last: Sequence[PlayedGroup]) -> Html | None:
    """The best and the worst attempt at a few tasks of the first and of the last update."""
    updates = [(folder.updates[0], first), (folder.updates[-1], last)] if folder.updates else []
    chosen = {number: choose_instructive(groups) for number, groups in updates if groups}
    steps = [step for groups in chosen.values() for group in groups for step in group.steps]
    if not steps:
        return None
    shown = [group for groups in chosen.values() for group in groups]
    shades = TokenShades(TokenTexts(folder.path), shown)
    scales = Scales(
        reach=find_usual_reach([step.credit for step in steps]),
        channels=find_channel_reaches(shown),
        shades=shades if shades.has_tokens else None,
    )
    goals = GoalLookup(folder.find_env())
    blocks = [
        join(
            tag("h3", f"Update {number}"),
            [
                write_group(
                    group, goals.find(group.task), scales=scales, is_open=number == folder.updates[-1] and not place
                )
                for place, group in enumerate(groups)
            ],
        )
        for number, groups in chosen.items()
    ]
    lead = (
        "The best and the worst attempt at a few tasks. The bar of a step is its credit: "
        "blue and to the right makes what was done likelier, orange and to the left less likely."
    )
    if any(group.pairs is not None for group in shown):
        lead += " The loss reads pairs of attempts, which stand below each task."
    missing = [
        describe(groups) for groups in chosen.values() for describe in (describe_underived, describe_missing_details)
    ]
    reasons = [*folder.list_untrusted(), *missing]
    notes = [tag("p", f"{reason}.", class_="meaning") for reason in reasons if reason]
    notes += [shades.write_legend()] if shades.has_tokens else []
    return make_section("attempts", "Attempts", join(notes), blocks, lead=lead)


def write_settings_section(folder: RunFolder) -> Html | None:
    """The resolved settings."""
    if not folder.config_text:
        return None
    lines = [
        tag("b", line) if line.startswith("[") else line
        for line in folder.config_text.strip().splitlines(keepends=True)
    ]
    return make_section(
        "settings",
        "Settings",
        tag("details", tag("summary", tag("span", CONFIG, class_="name")), tag("pre", lines)),
        lead="The whole configuration, defaults included; `groupwise train` takes it as it stands.".replace("`", ""),
    )


def choose_instructive(groups: Sequence[PlayedGroup]) -> list[PlayedGroup]:
    """A few groups to look at: those whose outcomes differ most, then those with credit."""
    attempted = [group for group in groups if group.attempts]
    return sorted(attempted, key=lambda group: (-group.spread, not group.teaches))[:NUM_TASKS]


def find_update_span(folder: RunFolder, verdict: RunVerdict | None) -> tuple[int, int]:
    """The first and the last update that any curve shows, so that all of them lie alike."""
    numbers = folder.updates + [score.number for score in (verdict.scores if verdict else ())]
    return min(numbers), max(numbers)


def find_usual_reach(credits: Sequence[float]) -> float:
    """The size that all but the largest twentieth of the credits stay below: what a full bar stands for."""
    sizes = sorted(abs(credit) for credit in credits if math.isfinite(credit))
    return sizes[math.ceil(0.95 * len(sizes)) - 1] or sizes[-1] if sizes else 0.0


def read_last_and_first(folder: RunFolder) -> tuple[list[PlayedGroup], list[PlayedGroup]]:
    """The groups of the last update and of the first; the first is empty where it is the last."""
    if not folder.updates:
        return [], []
    last = read_groups(folder, folder.updates[-1])
    return last, read_groups(folder, folder.updates[0]) if len(folder.updates) > 1 else []


def make_metric_curve(folder: RunFolder, name: str, title: str, verdict: RunVerdict | None) -> Curve:
    """A metric as a curve, with the evaluations where it is success."""
    metric = find_metric(name)
    meaning = metric.meaning[0].upper() + metric.meaning[1:] + "." if metric else name
    has_scores = name == "rollout/success" and verdict is not None and verdict.measure == "success"
    return Curve(
        span=find_update_span(folder, verdict),
        title=title,
        meaning=meaning,
        points=sorted(folder.metrics[name].items()),
        is_share=metric is not None and metric.unit == SHARE,
        scores=verdict.scores if has_scores and verdict else (),
    )


def _write_metric_table(folder: RunFolder) -> Html | None:
    """Every metric in numbers: first, last, lowest, highest."""
    rows = []
    for name, curve in folder.metrics.items():
        values = [value for _, value in sorted(curve.items())]
        if values:
            shown = [format_compact(value) for value in (values[0], values[-1], min(values), max(values))]
            metric = find_metric(name)
            meaning = metric.meaning if metric else None
            cells = [tag("td", value) for value in shown]
            rows.append(tag("tr", tag("th", tag("code", name), scope="row", title=meaning), cells))
    head = tag("tr", [tag("th", name, scope="col") for name in ("metric", "first", "last", "lowest", "highest")])
    table = tag("table", tag("thead", head), tag("tbody", rows))
    summary = tag("summary", tag("span", "Every metric in numbers", class_="name"))
    return tag("details", summary, tag("div", table, class_="scroll"), class_="rest") if rows else None


def _draw_credit_card(folder: RunFolder, last: Sequence[PlayedGroup]) -> Html:
    steps = [step for group in last for step in group.steps]
    silent = sum(not step.credit for step in steps) / len(steps)
    size = sum(abs(step.credit) for step in steps) / len(steps)
    compared = [step.compared for step in steps]
    lonely = (
        ""
        if None in compared
        else f"; {format_percent(1 - sum(map(bool, compared)) / len(compared))} compared with nobody"
    )
    own = [step.own_rollout_only for step in steps if step.compared]
    if own and None not in own:
        lonely += f"; {format_percent(sum(map(bool, own)) / len(own))} of the others only with their own rollout"
    underived = describe_underived(last)
    meaning = (
        f"Share of the steps of update {folder.updates[-1]} by their credit. "
        f"Mean size {format_compact(size)}; exactly 0: {format_percent(silent)}{lonely}."
    )
    return tag(
        "figure",
        tag("figcaption", tag("h3", "Credit"), tag("span", f"update {folder.updates[-1]}", class_="last")),
        draw_histogram([step.credit for step in steps]),
        tag("p", meaning, class_="meaning"),
        tag("p", f"{underived}.", class_="meaning") if underived else None,
        class_="card",
    )
