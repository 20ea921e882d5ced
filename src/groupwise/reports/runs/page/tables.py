"""The tables of a page of several runs: arms over seeds, arms against each other, families, runs, settings."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from groupwise.core.parts.setting_paths import flatten_settings
from groupwise.evaluation.over_seeds import Estimate, estimate_mean
from groupwise.evaluation.verdict import PanelScore
from groupwise.reports.run.number_format import (
    NO_NUMBER,
    format_compact,
    format_number,
    format_percent,
)
from groupwise.reports.run.page.markup import Html, cut_text, tag
from groupwise.reports.runs.arm_curves import RESAMPLES
from groupwise.reports.runs.page.charts import name_colour
from groupwise.reports.runs.read_runs import OWN_SETTINGS, ArmRuns
from groupwise.reports.runs.results import EVEN, ArmResult, Results, SeedResult

STRIP_WIDTH, STRIP_HEIGHT = 200.0, 16.0
MAX_SETTINGS = 40
"""Rows of the table of settings."""
MAX_VALUE = 60
"""Characters of a setting that are shown."""


def write_arm_table(results: Results, colours: dict[str, int]) -> Html:
    """A row for each arm: its interquartile mean at the last and at the best evaluation."""
    low, high = _find_span(results)
    rows = [
        tag(
            "tr",
            tag("th", _write_arm_name(arm.name, colours), scope="row"),
            tag("td", draw_strip(arm.final, low, high, colours[arm.name]), class_="strip-cell"),
            _write_estimate(results, arm, arm.final, "last"),
            _write_estimate(results, arm, arm.best, "best"),
            tag("td", str(len(arm.seeds)), data_name="seeds"),
        )
        for arm in results.arms
    ]
    return _make_table(("arm", "", "last", "best", "seeds"), rows, "arms")


def write_improvement_table(results: Results, colours: dict[str, int]) -> Html:
    """A row for each pair of arms."""
    rows = [
        tag(
            "tr",
            tag(
                "th",
                _write_arm_name(pair.arm, colours),
                tag("span", "over", class_="over"),
                _write_arm_name(pair.over, colours),
                scope="row",
            ),
            tag(
                "td",
                draw_strip(pair.probability, 0.0, 1.0, colours[pair.arm], mark=EVEN),
                class_="strip-cell",
            ),
            tag("td", tag("b", format_number(pair.probability.value, 2)), data_name="probability"),
            tag(
                "td",
                f"{format_number(pair.probability.low, 2)} to {format_number(pair.probability.high, 2)}"
                if pair.has_interval
                else NO_NUMBER,
                class_="bounds",
            ),
        )
        for pair in results.improvements
    ]
    return _make_table(("", "", "probability", "95 % interval"), rows, "arms")


def write_family_table(arms: Sequence[ArmRuns], results: Results, colours: dict[str, int]) -> Html | None:
    """For each family of tasks a row an arm: the mean over seeds at the last evaluation; None without families."""
    by_family: dict[str, dict[str, list[PanelScore]]] = {}
    for arm in arms:
        for family in (family for run in arm.runs if run.verdict for family in run.verdict.families):
            by_family.setdefault(family.name, {}).setdefault(arm.name, []).append(family.after)
    if not by_family:
        return None
    bodies = [
        tag(
            "tbody",
            tag(
                "tr",
                tag(
                    "th", f"{name} ", tag("span", _count_tasks(of_arms), class_="quiet"), colspan="3", scope="rowgroup"
                ),
            ),
            [_write_family_row(arm, scores, results, colours[arm]) for arm, scores in of_arms.items()],
        )
        for name, of_arms in sorted(by_family.items())
    ]
    return tag("table", bodies, class_="by-family")


def write_run_table(results: Results, colours: dict[str, int]) -> Html:
    """A row for each run that was evaluated."""
    rows = [_write_run_row(results, arm, seed, colours) for arm in results.arms for seed in arm.seeds]
    return _make_table(("arm", "seed", "updates", "first", "last", "best", "best after"), rows, "runs")


def write_setting_table(arms: Sequence[ArmRuns]) -> Html | None:
    """The settings in which arms differ; None where there is one arm, or where they do not."""
    settings = [
        flatten_settings({name: value for name, value in arm.runs[0].settings.items() if name not in OWN_SETTINGS})
        for arm in arms
    ]
    paths = dict.fromkeys(path for flat in settings for path in flat)
    differing = [path for path in paths if len({repr(flat.get(path)) for flat in settings}) > 1]
    if not differing:
        return None
    rows = [
        tag(
            "tr",
            tag("th", tag("code", path), scope="row"),
            [tag("td", cut_text(str(flat.get(path, NO_NUMBER)), MAX_VALUE)) for flat in settings],
        )
        for path in differing[:MAX_SETTINGS]
    ]
    if len(differing) > MAX_SETTINGS:
        left = f"and {len(differing) - MAX_SETTINGS} more"
        rows.append(tag("tr", tag("th", left, colspan=str(len(arms) + 1), scope="row")))
    return _make_table(("setting", *(arm.name for arm in arms)), rows, "settings")


def draw_strip(estimate: Estimate, low: float, high: float, arm: int, *, mark: float | None = None) -> Html:
    """An estimate on a line from `low` to `high`: a dot, and its interval; `mark` is a place to compare with."""

    def place(value: float) -> float:
        return 6 + (value - low) / ((high - low) or 1.0) * (STRIP_WIDTH - 12)

    middle = STRIP_HEIGHT / 2
    marked = tag("line", x1=place(mark), x2=place(mark), y1=0.0, y2=STRIP_HEIGHT, class_="zero") if mark else None
    return tag(
        "svg",
        tag("line", x1=0.0, x2=STRIP_WIDTH, y1=middle, y2=middle, class_="grid"),
        marked,
        tag("line", x1=place(estimate.low), x2=place(estimate.high), y1=middle, y2=middle, class_="reach"),
        tag("circle", cx=place(estimate.value), cy=middle, r="4.5"),
        class_=f"estimate {name_colour(arm)}",
        viewBox=f"0 0 {STRIP_WIDTH:.0f} {STRIP_HEIGHT:.0f}",
        aria_hidden="true",
    )


def format_score(results: Results, value: float | None) -> str:
    """A score as it is shown."""
    return format_percent(value) if results.measure == "success" else format_compact(value)


def _make_table(names: Sequence[str], rows: Sequence[Html], kind: str) -> Html:
    head = tag("tr", [tag("th", name, scope="col") for name in names])
    return tag("table", tag("thead", head), tag("tbody", list(rows)), class_=kind)


def _write_arm_name(name: str, colours: dict[str, int]) -> Html:
    return tag("span", tag("i", class_=f"swatch {name_colour(colours[name])}"), name, class_="arm-name")


def _write_estimate(results: Results, arm: ArmResult, estimate: Estimate, name: str) -> Html:
    return tag(
        "td",
        tag("b", format_score(results, estimate.value)),
        tag("span", _format_bounds(results, estimate), class_="bounds") if arm.has_interval else None,
        data_name=name,
    )


def _format_bounds(results: Results, estimate: Estimate) -> str:
    if results.measure == "success":
        return f"{format_number(100 * estimate.low, 1)} to {format_number(100 * estimate.high, 1)}"
    return f"{format_compact(estimate.low)} to {format_compact(estimate.high)}"


def _write_family_row(arm: str, scores: Sequence[PanelScore], results: Results, colour: int) -> Html:
    mean = estimate_mean(np.array([[score.value] for score in scores]), resamples=RESAMPLES)
    low, high = _find_span(results)
    return tag(
        "tr",
        tag("th", tag("span", tag("i", class_=f"swatch {name_colour(colour)}"), arm, class_="arm-name"), scope="row"),
        tag("td", draw_strip(mean, low, high, colour), class_="strip-cell"),
        tag(
            "td",
            tag("b", format_score(results, mean.value)),
            tag("span", _format_bounds(results, mean), class_="bounds") if len(scores) > 1 else None,
        ),
    )


def _write_run_row(results: Results, arm: ArmResult, seed: SeedResult, colours: dict[str, int]) -> Html:
    numbers = (seed.before, seed.final, seed.best)
    return tag(
        "tr",
        tag("th", _write_arm_name(arm.name, colours), scope="row"),
        tag("td", NO_NUMBER if seed.seed is None else str(seed.seed)),
        tag("td", f"{seed.updates:,}"),
        [tag("td", format_score(results, number)) for number in numbers],
        tag("td", str(seed.best_update)),
    )


def _count_tasks(of_arms: dict[str, list[PanelScore]]) -> str:
    tasks = max(score.tasks for scores in of_arms.values() for score in scores)
    return f"{tasks:,} task{'' if tasks == 1 else 's'}"


def _find_span(results: Results) -> tuple[float, float]:
    """From where to where strips run: shares from 0 to 1, outcomes over all that was seen."""
    if results.measure == "success":
        return 0.0, 1.0
    values = [
        value for arm in results.arms for seed in arm.seeds for value in (seed.final, seed.best, seed.before or 0.0)
    ]
    return min(values), max(values)
