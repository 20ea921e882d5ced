"""The page of a run, in one HTML file."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Any

from groupwise.report import charts, overview
from groupwise.report.derived_credit import (
    NUM_SHADES,
    CreditedTokens,
    choose_shade,
    describe_company,
    find_reach,
    shade_tokens,
)
from groupwise.report.first_screen import show_first_screen
from groupwise.report.groups import (
    PlayedGroup,
    PlayedRollout,
    PlayedStep,
    describe_missing_details,
    describe_set_aside,
    describe_underived,
    read_groups,
)
from groupwise.report.markup import PACKAGE, Html, render
from groupwise.report.number_format import (
    INTERVAL_LEVEL,
    NO_NUMBER,
    THIN_SPACE,
    TIMES,
    format_compact,
    format_count,
    format_interval,
    format_percent,
    format_seconds,
    format_signed,
    shorten_hash,
)
from groupwise.report.prompts import GoalLookup, TaskGoal, TokenTexts
from groupwise.report.rescue import (
    describe_hint,
    describe_replayed,
    describe_shaping,
    find_recent_rescues,
    format_sizes,
    has_rescues,
    rescue_of,
)
from groupwise.store.run_folder import CONFIG, JOURNAL
from groupwise.system.files import write_atomic
from groupwise.system.text import quote_line
from groupwise.training.alarms import RETURN, SUCCESS
from groupwise.training.evaluation.summary import RunVerdict, TaskSetScore, describe_when
from groupwise.training.metrics import SHARE, find_metric
from groupwise.training.run_reader import RunFolder

NAMES = {
    "task_sets": "Task sets",
    "categories": "Task categories",
    "events": "Alarms and changes",
    "learning": "Curves",
    "groups": "Learning signal",
    "rescued": "Rescued groups",
    "rollouts": "Rollouts",
    "time": "Time",
    "settings": "Settings",
}
"""Names of the sections, in the list at the top."""
NO_BREAK = "\N{NO-BREAK SPACE}"
MAX_FIELDS = 3
"""Fields of a part in the headline."""
MAX_SETTING = 60
"""Printed characters of a setting's value."""


def render_page(folder: RunFolder, *, method: str, note: str = "") -> str:
    """The report of a run as HTML; the same folder gives the same bytes. `note` is printed after the method."""
    verdict = overview.find_verdict(folder)
    last = read_groups(folder, folder.updates[-1]) if folder.updates else []
    first = read_groups(folder, folder.updates[0]) if len(folder.updates) > 1 else []
    screen = show_first_screen(folder, verdict)
    content = {
        "categories": _list_categories(verdict),
        "task_sets": show_task_sets(overview.list_verdicts(folder), verdict),
        "events": _list_events(folder),
        "learning": show_learning(folder, verdict),
        "groups": show_groups(folder, verdict, last),
        "rescued": show_rescued(folder, verdict, last),
        "rollouts": show_rollouts(folder, first, last),
        "time": show_time(folder),
        "settings": folder.config_text.strip().splitlines(keepends=True),
    }
    env = name_kind(folder.setting("env") or folder.setting("agent"))
    has_details = any(  # token credit, channels or pairs
        group.pairs is not None
        or any(step.tokens is not None or step.channels for rollout in group.members for step in rollout.steps)
        for group in (*first, *last)
    )
    styles = ["page.css", "details.css"] if has_details else ["page.css"]
    return render(
        "run.html.j2",
        **content,
        title=f"{method} on {env}" if env else method,
        name=folder.name,
        style=read_styles(styles),
        heading=method,
        env=env,
        info=_list_info(folder, method, note if screen["own"] is None else ""),  # else they are listed
        links={name: words for name, words in NAMES.items() if content[name]},
        journal=JOURNAL,
        config=CONFIG,
        updates=folder.updates,
        **screen,
        penalised=overview.describe_penalties(overview.find_penalised_updates(folder), len(folder.updates)),
        percent_sign=f"{THIN_SPACE}%",
        describe_when=describe_when,
    )


def write_page(path: Path, text: str) -> int:
    """Write a page atomically. Returns its size in bytes."""
    content = text.encode("utf-8", errors="replace")  # a lone surrogate is not valid UTF-8
    with write_atomic(path, advice="choose another file with --out") as draft:
        draft.write_bytes(content)
    return len(content)


def read_styles(names: Sequence[str]) -> Html:
    return Html("".join(resources.files(PACKAGE).joinpath(name).read_text(encoding="utf-8") for name in names))


def _list_info(folder: RunFolder, method: str, note: str) -> dict[str, str]:
    seed, lag = folder.setting("seed"), overview.describe_lag(folder)
    planned, made = folder.setting("training.updates"), len(folder.updates)
    updates = f"{made:,}" if planned in (None, made) else f"{made:,} of {planned:,}"
    tasks, tries = folder.setting("training.tasks"), folder.setting("rollout.group_size")
    task_sets = ", ".join(f"{split}{NO_BREAK}{shorten_hash(digest)}" for split, digest in folder.task_sets.items())
    return {
        "method": f"{method} ({note})" if note else method,
        "environment": describe_part(folder.setting("env") or folder.setting("agent")),
        **({"task sets": task_sets} if task_sets else {}),
        "model": describe_part(folder.setting("model")),
        "seed": NO_NUMBER if seed is None else str(seed),
        "updates": f"{updates}, each of {tasks} tasks {TIMES} {tries} rollouts" if tasks and tries else updates,
        **({"rollouts sampled": lag} if lag else {}),
        "time": format_seconds(sum(overview.sum_stage_seconds(folder).values()) or None),
    }


def _list_categories(verdict: RunVerdict | None) -> dict[str, Any] | None:
    if verdict is None or not verdict.categories:
        return None
    is_share, lead = verdict.measure == "success", "The evaluation above, by task category."
    if verdict.before is not None:
        before, after = describe_when(verdict.before), describe_when(verdict.after)
        lead = f"The evaluations above, by task category. Grey: {before}; blue: {after}."
    by_category = [
        {name: score for name, score in (("before", category.before), ("after", category.after)) if score is not None}
        for category in verdict.categories
    ]
    high = 1.0 if is_share else max(score.value for scores in by_category for score in scores.values()) or 1.0
    rows = []
    for category, scores in zip(verdict.categories, by_category, strict=True):
        change = category.after.value - category.before.value if category.before else None
        bars = []
        for name, score in scores.items():
            width = 100 * min(max(score.value / high, 0.0), 1.0)
            bars.append((name, width, format_interval(score.value, score.interval, is_share)))
        rows.append(
            {
                "name": category.name,
                "tasks": category.after.tasks,
                "bars": bars,
                "before": category.before and category.before.value,
                "after": category.after.value,
                "change": format_signed(change and 100 * change, 1) if is_share else format_signed(change),
            }
        )
    return {"lead": lead, "rows": rows}


def show_task_sets(verdicts: Sequence[RunVerdict], main: RunVerdict | None) -> dict[str, Any] | None:
    """All that was measured on each task set, the main one first, and below it on its categories.

    Nothing if one task set was evaluated, with one rollout per task and without a score: it is shown above.
    """
    last = [verdict.after for verdict in verdicts]
    if len(last) < 2 and all(score.score is None and score.pass_at is None for score in last):
        return None
    columns: dict[str, Callable[[TaskSetScore], str | None]] = {
        "score": lambda score: None if score.score is None else format_compact(score.score),
        "pass@k": lambda score: (
            None if score.pass_at is None else f"{format_percent(score.pass_at.success)} (k = {score.pass_at.k})"
        ),
        "tokens": lambda score: None if score.tokens is None else f"{score.tokens:,.1f}",
    }
    rows = []
    for verdict in sorted(verdicts, key=lambda verdict: verdict != main):
        is_share = verdict.measure == "success"
        scores = [(verdict.name, False, verdict.before, verdict.after)]
        scores += [(category.name, True, category.before, category.after) for category in verdict.categories]
        for name, is_category, before, after in scores:
            sides = [score for score in (before, after) if score is not None]
            cells = [[format_interval(score.value, score.interval, is_share) for score in sides]]
            cells += [[words for score in sides if (words := show(score))] for show in columns.values()]
            rows.append(
                {"name": name, "is_category": is_category, "tasks": after.tasks, "cells": map(" → ".join, cells)}
            )
    return {"heads": ["task set", "tasks", "result", *columns], "rows": rows}


def _list_events(folder: RunFolder) -> list[tuple[int, str, str, str]]:
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
    """The kind of a part and its first plain fields.

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
    """The kind of a part; for an outside part without its module."""
    kind = part.get("kind", "") if isinstance(part, Mapping) else ""
    return str(kind).rpartition(":")[2]


# The longer sections: curves, time, groups, rescued groups.

MAIN_CURVES = {
    SUCCESS: "Success",
    RETURN: "Return",
    "rollout/steps": "Steps",
    "rollout/valid": "Valid actions",
    "rollout/entropy": "Entropy",
    "loss/entropy": "Entropy (learner)",
    "loss/total": "Loss",
    "learner/grad_norm": "Gradient norm",
    "loss/kl_to_reference": "KL to the reference",
}
"""Metrics with a curve, and their titles."""
RESCUE_CURVES = {
    "rollout/zero_variance": "Zero-variance tasks",
    "replay/rollouts": "Replayed rollouts",
    "replay/staleness": "Staleness of replayed rollouts",
    "replay/log_ratio": "Log-ratio of replayed rollouts",
    "hint/groups": "Groups with a hint",
    "hint/success": "Success with a hint",
    "shaping/groups": "Shaped groups",
}
"""The same in the section on rescued groups."""
NUM_TASKS = 3
"""Tasks per update that are shown."""
MAX_RESCUES = 12
"""Listed rescued groups."""


def show_learning(folder: RunFolder, verdict: RunVerdict | None) -> dict[str, Any] | None:
    """The main curves, and a table of all metrics."""
    cards = [
        draw_metric_card(folder, name, title, verdict)
        for name, title in MAIN_CURVES.items()
        if folder.metrics.get(name)
        and (name != SUCCESS or overview.has_success(folder))
        and (name != RETURN or folder.metrics[name] != folder.metrics.get(SUCCESS))  # one curve is enough
    ]
    if not cards:
        return None
    lead = "Measured on the training rollouts of each update."
    if verdict is not None and verdict.measure == "success" and SUCCESS in folder.metrics:
        lead += f" Open dots are evaluations with their {INTERVAL_LEVEL} intervals."
    rows = []
    for name, curve in folder.metrics.items():
        values, metric = [value for _, value in sorted(curve.items())], find_metric(name)
        if values:
            rows.append((name, metric and metric.meaning, (values[0], values[-1], min(values), max(values))))
    return {"lead": lead, "cards": cards, "metrics": rows}


def show_time(folder: RunFolder) -> dict[str, Any] | None:
    stages = overview.sum_stage_seconds(folder)
    whole = sum(stages.values())
    if not whole:
        return None
    lead = f"{format_seconds(whole)} over {format_count(len(folder.updates), 'update')}, without evaluations."
    return {"lead": lead, "stages": stages, "whole": whole, "bar": charts.draw_stacked_bar(stages)}


def show_groups(folder: RunFolder, verdict: RunVerdict | None, last: Sequence[PlayedGroup]) -> dict[str, Any] | None:
    """The groups over the updates, and a histogram of the last update's advantages."""
    counts = overview.count_groups(folder)
    if not counts:
        return None
    span = find_update_span(folder, verdict)
    own = sorted(folder.metrics.get("advantage/own_rollout_only", {}).items())
    shares = {
        "Groups with a learning signal": (
            "Fraction of groups in which some step has an advantage other than 0.",
            sorted(folder.metrics.get("advantage/groups_with_signal", {}).items()),
        ),
        "Zero-variance groups": (
            "Fraction of tasks whose rollouts all have the same final score. Only lengths, step rewards or penalties "
            "can still give them a learning signal.",
            [(count.number, count.equal_share) for count in counts],
        ),
        "Steps compared": (
            "Fraction of steps with other steps in their group.",
            sorted(folder.metrics.get("advantage/compared", {}).items()),
        ),
        "Compared with their own rollout only": (
            "Fraction of the compared steps that have no other rollout in any of their groups.",
            own if any(value for _, value in own) else [],
        ),
    }
    cards = [
        charts.draw_curve_card(charts.Curve(span=span, title=title, meaning=meaning, points=points, is_share=True))
        for title, (meaning, points) in shares.items()
        if points
    ]
    sizes = [(count.number, count.mean_size) for count in counts]
    lead = "Advantages come from comparing rollouts of one task. If they do not differ, there is no learning signal."
    if len({size for _, size in sizes}) == 1:
        lead += f" Every group has {format_compact(sizes[0][1])} rollouts."
    else:
        meaning = "Mean number of rollouts per group."
        cards.append(charts.draw_curve_card(charts.Curve(span=span, title="Group size", meaning=meaning, points=sizes)))
    if any(group.steps for group in last):
        cards.append(_draw_credit_card(folder, last))
    return {"lead": lead, "cards": cards}


def _draw_credit_card(folder: RunFolder, last: Sequence[PlayedGroup]) -> Html:
    steps = [step for group in last for step in group.steps]
    silent = sum(not step.credit for step in steps) / len(steps)
    size = sum(abs(step.credit) for step in steps) / len(steps)
    compared, own = [step.compared for step in steps], [step.own_rollout_only for step in steps if step.compared]
    lonely = ""
    if None not in compared:
        lonely += f"; {format_percent(1 - sum(map(bool, compared)) / len(compared))} not compared"
    if own and None not in own:
        lonely += f"; {format_percent(sum(map(bool, own)) / len(own))} of the others only with their own rollout"
    meanings = [
        f"Fraction of the steps of update {folder.updates[-1]} by their advantage. "
        f"Mean size {format_compact(size)}; exactly 0: {format_percent(silent)}{lonely}."
    ]
    meanings += [f"{underived}."] if (underived := describe_underived(last)) else []
    return charts.draw_card(
        "Advantages of steps",
        f"update {folder.updates[-1]}",
        charts.draw_histogram([step.credit for step in steps]),
        *meanings,
    )


def show_rescued(folder: RunFolder, verdict: RunVerdict | None, last: Sequence[PlayedGroup]) -> dict[str, Any] | None:
    """Groups with a learning signal by replay, reward shaping or hints; None if there are none."""
    if not has_rescues(folder):
        return None
    cards = []
    signal, rescued = (folder.metrics.get(f"advantage/groups_{name}", {}) for name in ("with_signal", "rescued"))
    if numbers := sorted(signal.keys() & rescued.keys()):
        shares = {
            "by themselves": {number: signal[number] - rescued[number] for number in numbers},
            "rescued": {number: rescued[number] for number in numbers},
            "without": {number: 1 - signal[number] for number in numbers},
        }
        meaning = (
            "Fraction of groups by the source of their learning signal. Groups with a hint are included: if their "
            "rollouts differ, they have a signal by themselves."
        )
        cards.append(charts.draw_bands_card("Groups with signal", meaning, shares, find_update_span(folder, verdict)))
    cards += [
        draw_metric_card(folder, name, title, verdict)
        for name, title in RESCUE_CURVES.items()
        if any(folder.metrics.get(name, {}).values())
    ]
    newest = []
    for number, rescue in find_recent_rescues(folder, last, max_rescues=MAX_RESCUES):
        without, size = format_sizes(rescue)
        row = {"number": number, "task": rescue.task, "without": without, "size": size}
        row["why"] = "; ".join(dict.fromkeys(source.why for source in rescue.replayed))
        row |= {"replayed": describe_replayed(rescue), "shaped": describe_shaping(rescue)}
        newest.append(row | {"hint": describe_hint(rescue)})
    return {"cards": cards, "newest": newest}


def show_rollouts(
    folder: RunFolder, first: Sequence[PlayedGroup], last: Sequence[PlayedGroup]
) -> dict[str, Any] | None:
    """The best and the worst rollout of a few tasks of the first and the last update."""
    updates = [(folder.updates[0], first), (folder.updates[-1], last)] if folder.updates else []
    chosen = {number: choose_instructive(groups) for number, groups in updates if groups}
    shown = [group for groups in chosen.values() for group in groups]
    steps = [step for group in shown for step in group.steps]
    if not steps:
        return None
    shades = TokenShades(TokenTexts(folder.path), shown)
    channels: dict[str, float] = {}
    for step in (step for group in shown for rollout in group.members for step in rollout.steps):
        for name, credit in step.channels.items():
            channels[name] = max(channels.get(name, 0.0), abs(credit))
    scales = Scales(
        reach=find_usual_reach([step.credit for step in steps]),
        channels=channels,
        shades=shades if shades.has_tokens else None,
    )
    goals = GoalLookup(folder.find_env())
    blocks = {
        number: [
            write_group(
                group, goals.find(group.task), scales=scales, is_open=number == folder.updates[-1] and not place
            )
            for place, group in enumerate(groups)
        ]
        for number, groups in chosen.items()
    }
    lead = (
        "The best and the worst rollout of a few tasks. The bar of a step is its advantage: "
        "blue (right) makes the action more likely, orange (left) less likely."
    )
    if any(group.pairs is not None for group in shown):
        lead += " The loss reads pairs of rollouts; they are listed below each task."
    missing = [
        describe(groups) for groups in chosen.values() for describe in (describe_underived, describe_missing_details)
    ]
    notes = list(filter(None, [*folder.list_untrusted(), *missing]))
    return {"lead": lead, "notes": notes, "shades": scales.shades, "updates": blocks}


def choose_instructive(groups: Sequence[PlayedGroup]) -> list[PlayedGroup]:
    """A few groups to show: those with the largest standard deviation, then those with a learning signal."""
    tried = [group for group in groups if group.rollouts]
    return sorted(tried, key=lambda group: (-group.spread, not group.teaches))[:NUM_TASKS]


def find_update_span(folder: RunFolder, verdict: RunVerdict | None) -> tuple[int, int]:
    """The first and the last update of any curve: all curves have one axis."""
    numbers = folder.updates + [score.number for score in (verdict.scores if verdict else ())]
    return min(numbers), max(numbers)


def find_usual_reach(credits: Sequence[float]) -> float:
    """The 95 % quantile of the absolute advantages: the value of a full bar."""
    sizes = sorted(abs(credit) for credit in credits if math.isfinite(credit))
    return sizes[math.ceil(0.95 * len(sizes)) - 1] or sizes[-1] if sizes else 0.0


def draw_metric_card(folder: RunFolder, name: str, title: str, verdict: RunVerdict | None) -> Html:
    metric = find_metric(name)
    has_scores = name == SUCCESS and verdict is not None and verdict.measure == "success"
    return charts.draw_curve_card(
        charts.Curve(
            span=find_update_span(folder, verdict),
            title=title,
            meaning=metric.meaning[0].upper() + metric.meaning[1:] + "." if metric else name,
            points=sorted(folder.metrics[name].items()),
            is_share=metric is not None and metric.unit == SHARE,
            scores=verdict.scores if has_scores and verdict else (),
        )
    )


# A rollout as a dialogue, with the advantages of steps and tokens.

MAX_CHARACTERS = 600
"""Shown characters of a text."""
MAX_STEPS = 60
"""Shown steps of a rollout, the first and the last of them."""
MAX_TOKENS = 240
"""Shown tokens of a response, the first and the last of them."""
MAX_TOKENS_OF_ROLLOUT = 2400
"""Shaded tokens of a rollout. Later responses have no shades, to keep the page small."""
MAX_PAIRS = 12
"""Listed pairs of a group; more are counted."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Scales:
    """The advantages of full bars, for steps and for each further channel, and the shades of tokens."""

    reach: float
    channels: dict[str, float] = field(default_factory=dict)
    shades: TokenShades | None = None


class TokenShades:
    """Shades the responses of a page; the strongest shade is the largest absolute advantage among them."""

    kinds = tuple(f"m{-shade}" if shade < 0 else f"p{shade}" for shade in range(-NUM_SHADES, NUM_SHADES + 1))
    """CSS classes: m5 to m1 for negative advantages, p0 for 0, p1 to p5 for positive ones."""

    def __init__(self, texts: TokenTexts, groups: Sequence[PlayedGroup]) -> None:
        self._texts = texts
        shown = [step.tokens for group in groups for rollout in (group.best(), group.worst()) for step in rollout.steps]
        self.reach = find_reach(tokens for tokens in shown if tokens is not None)
        self.has_tokens = any(tokens is not None for tokens in shown)

    def choose_steps(self, steps: Sequence[PlayedStep]) -> set[int]:
        """The indices of a rollout's shaded steps: the first ones, up to the limit of tokens."""
        chosen, shown = set(), 0
        for step in steps:
            shown += 0 if step.tokens is None else min(len(step.tokens.ids), MAX_TOKENS)
            if shown > MAX_TOKENS_OF_ROLLOUT:
                break
            chosen.add(step.step)
        return chosen

    def list_pieces(self, tokens: CreditedTokens) -> Iterator[tuple[str, str, str]]:
        """The pieces of a response with equal shades: class, tooltip and text."""
        num, half, texts = len(tokens.ids), MAX_TOKENS // 2, self._texts.cut(tokens.ids)
        parts = [(0, None)] if num <= MAX_TOKENS else [(0, half), (num - half, None)]
        for first, end in parts:
            if first:
                yield "cut", "", f" … {num - 2 * half:,} tokens left out … "
            for piece in shade_tokens(tokens, texts, first=first, end=end):
                shade = "untrained"
                if piece.credit is not None:
                    shade = self.kinds[NUM_SHADES + choose_shade(piece.credit, self.reach)]
                yield shade, piece.meaning, piece.text


def write_group(group: PlayedGroup, goal: TaskGoal, *, scales: Scales, is_open: bool = False) -> Html:
    """A task: an overview of its rollouts, the best and the worst in full, and the pairs."""
    best, worst = group.best(), group.worst()
    chosen = [("best", best)] if best is worst else [("best", best), ("worst", worst)]
    rollouts = []
    for name, rollout in chosen:
        half = MAX_STEPS // 2 if len(rollout.steps) > MAX_STEPS else len(rollout.steps)
        first, last = rollout.steps[:half], rollout.steps[half:][-half:]
        shaded = scales.shades.choose_steps([*first, *last]) if scales.shades else set[int]()
        rollouts.append((name, rollout, [*first, None, *last] if last else first, shaded))
    high = max(group.outcomes)
    dots = [
        (
            bool(rollout.success) if rollout.success is not None else rollout.outcome == high,
            f"rollout {rollout.rollout}: final score {format_compact(rollout.outcome)}",
        )
        for rollout in group.rollouts
    ]
    return render(
        "group.html.j2",
        group=group,
        goal=goal,
        is_open=is_open,
        words=_describe_group(group),
        dots=dots,
        rollouts=rollouts,
        max_characters=MAX_CHARACTERS,
        max_pairs=MAX_PAIRS,
        describe_rollout=_describe_rollout,
        describe_company=describe_company,
        list_pieces=scales.shades.list_pieces if scales.shades else None,
        name_sign=charts.name_sign,
        scale_credit=lambda credit: charts.scale_credit(credit, scales.reach),
        draw_bar=lambda credit, channel=None: charts.draw_credit_bar(
            credit, scales.channels.get(channel, 0.0) if channel else scales.reach
        ),
        draw_strip=lambda rollout: charts.draw_credit_strip([step.credit for step in rollout.steps], scales.reach),
    )


def _describe_group(group: PlayedGroup) -> str:
    judged = [rollout for rollout in group.rollouts if rollout.success is not None]
    solved = sum(bool(rollout.success) for rollout in judged)
    words = f"{solved} of {len(judged)} rollouts solved it" if judged else format_count(len(group.rollouts), "rollout")
    if not group.teaches:
        words += "; no step has an advantage" if group.pairs is None else "; no pair"
    rescue = rescue_of(group)
    if rescue is not None:
        done = {
            "replayed": describe_replayed(rescue),
            "shaped": describe_shaping(rescue),
            "hint": describe_hint(rescue),
        }
        words += "".join(f"; {name}: {what}" for name, what in done.items() if what != NO_NUMBER)
    return words + (f"; {describe_set_aside(group)}" if group.set_aside else "")


def _describe_rollout(rollout: PlayedRollout) -> str:
    outcome = "" if rollout.success is not None else f"final score {format_compact(rollout.outcome)}"
    stop = "" if rollout.stop == "terminated" else rollout.stop
    end = stop if rollout.origin == "fresh" else f"{rollout.origin} {stop}".strip()
    words = [f"rollout {rollout.rollout}", format_count(len(rollout.steps), "step"), outcome, end]
    return " · ".join(filter(None, words))
