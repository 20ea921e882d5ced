"""The page of several runs, in one HTML file: results over seeds, curves, categories, runs, settings."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from groupwise.report import charts
from groupwise.report.markup import Html, join, render, tag
from groupwise.report.number_format import (
    INTERVAL_LEVEL,
    NO_NUMBER,
    THIN_SPACE,
    format_bounds,
    format_count,
    format_interval,
    format_number,
    format_score,
    format_seconds,
    shorten_hash,
)
from groupwise.report.page import MAIN_CURVES, name_kind, read_styles
from groupwise.report.runs import (
    EVEN,
    RESAMPLES,
    STEPS,
    TIME,
    TOKENS,
    UPDATES,
    Results,
    VariantCurve,
    VariantRuns,
    find_axes,
    find_differing,
    flatten_shared,
    make_metric_curves,
    make_score_curves,
    sum_up,
)
from groupwise.training.evaluation.over_seeds import Estimate, estimate_mean
from groupwise.training.evaluation.summary import TaskSetScore
from groupwise.training.metrics import SHARE, find_metric

NAMES = {
    "curves": "Curves",
    "pairs": "Pairs of variants",
    "categories": "Task categories",
    "runs": "Runs",
    "settings": "Different settings",
}
"""Names of the sections, in the list at the top."""
TITLES = {UPDATES: "updates", STEPS: "environment steps", TOKENS: "sampled tokens", TIME: "time"}
"""Names of the axes."""
MAX_NAMED = 4
"""Variants in the headline."""
MAX_SETTINGS = 40
"""Rows of the table of settings."""
NUM_COLOURS = 8
"""With more variants, colours repeat with dashed lines."""


def render_runs_page(variants: Sequence[VariantRuns], *, name: str) -> str:
    """Several runs as HTML; the same folders give the same bytes. It is an error if the task sets differ."""
    results = sum_up(variants)
    colours = {variant.name: name_colour(place) for place, variant in enumerate(variants)}
    is_share = results is not None and results.measure == "success"
    low, high = 0.0, 1.0  # ends of the strips; for final scores their smallest and largest value
    if results is not None and not is_share:
        seeds = [seed for variant in results.variants for seed in variant.seeds]
        values = [value for seed in seeds for value in (seed.final, seed.best, seed.before or 0.0)]
        low, high = min(values), max(values)
    axes = find_axes(variants)
    content = {
        "curves": _draw_curves(variants, results, axes),
        "pairs": results and results.improvements,
        "categories": results and _list_categories(variants),
        "runs": results,
        "settings": _compare_settings(variants),
    }
    title = ", ".join(variant.name for variant in variants)
    if len(variants) > MAX_NAMED or (len(title) > 60 and len(variants) > 1):
        title = format_count(len(variants), "variant")
    return render(
        "runs.html.j2",
        **content,
        title=title,
        name=name,
        style=read_styles(["page.css", "runs.css"]),
        heading=title,
        env=None,
        info=_list_info(variants, results),
        links={key: words for key, words in NAMES.items() if content[key]},
        results=results,
        sentence=write_ranking(results)
        if results
        else "None of these runs was evaluated on a fixed task set, so they cannot be ranked.",
        is_share=is_share,
        what="Success" if is_share else "Mean final score",
        level=INTERVAL_LEVEL,
        notes=_list_notes(results, variants) if results else [],
        variants=list(colours),
        axes={axis: TITLES[axis] for axis in axes},
        colour=colours.__getitem__,
        draw_strip=lambda estimate, variant: _draw_strip(estimate, low, high, colours[variant]),
        draw_even_strip=lambda estimate, variant: _draw_strip(estimate, 0.0, 1.0, colours[variant], mark=EVEN),
    )


def write_ranking(results: Results) -> str:
    is_share = results.measure == "success"
    ranked = sorted(results.variants, key=lambda variant: -variant.final.value)
    best = ranked[0]
    seeds = format_count(len(best.seeds), "seed")
    bounds = format_bounds((best.final.low, best.final.high), is_share)
    interval = f"{INTERVAL_LEVEL} CI {bounds}, {seeds}" if best.has_interval else seeds
    what = "success" if is_share else "final score"
    where = f"{results.tasks:,} {'training' if results.split == 'train' else 'held-out'} tasks"
    reached = f"{format_score(best.final.value, is_share)} ({interval})"
    if len(ranked) == 1:
        return f"{best.name} reached a mean {what} of {reached} on {where}."
    sentence = f"{best.name} has the highest mean {what} on {where}: {reached}."
    pairs = {(pair.variant, pair.over): pair for pair in results.improvements}
    pair = pairs.get((best.name, ranked[1].name))
    if pair is None:
        return sentence
    sentence += (
        f" A run of it is better than a run of {pair.over}, the second, with probability "
        f"{format_number(pair.probability.value, 2)}"
    )
    if not pair.has_interval:
        return f"{sentence}. One seed gives no interval."
    low, high = pair.probability.low, pair.probability.high
    significant = "significant" if low > EVEN else "not significant"
    return f"{sentence} ({INTERVAL_LEVEL} CI {format_number(low, 2)} to {format_number(high, 2)}): {significant}."


def name_colour(variant: int) -> str:
    """The CSS class with the colour of a variant.

    >>> name_colour(1), name_colour(9)
    ('variant1', 'variant1 again')
    """
    return f"variant{variant % NUM_COLOURS}" + (" again" if variant >= NUM_COLOURS else "")


def _list_info(variants: Sequence[VariantRuns], results: Results | None) -> dict[str, str]:
    runs = [run for variant in variants for run in variant.runs]
    made, planned = {len(run.updates) for run in runs}, {run.planned for run in runs}
    updates = " to ".join(f"{number:,}" for number in sorted({min(made), max(made)}))
    of = f" of {max(planned):,}" if planned != made and None not in planned else ""  # type: ignore[type-var]
    kinds = {
        section: ", ".join(filter(None, dict.fromkeys(name_kind(run.settings.get(section)) for run in runs)))
        for section in ("env", "agent", "model")
    }
    info = {
        "runs": f"{format_count(len(variants), 'variant')}, {format_count(len(runs), 'run')}",
        "environment": ", ".join(filter(None, (kinds["env"], kinds["agent"]))),
        "model": kinds["model"],
        "updates": updates + of,
    }
    if results is not None:
        info["task set"] = f"{format_count(results.tasks, 'task')} of {results.name} ({shorten_hash(results.task_set)})"
    return info


def _list_notes(results: Results, variants: Sequence[VariantRuns]) -> list[str]:
    notes = []
    few = [variant.name for variant in results.variants if len(variant.seeds) < 3]
    if few:
        notes.append(f"An interval over fewer than three seeds is not reliable: {', '.join(few)}.")
    if results.missing:
        notes.append(f"Not evaluated yet, so not counted: {', '.join(results.missing)}.")
    short = [
        f"{variant.name} seed {run.seed} ({len(run.updates)} of {run.planned})"
        for variant in variants
        for run in variant.runs
        if run.verdict and run.planned and len(run.updates) < run.planned
    ]
    if short:
        notes.append(f"Not finished; counted up to their last update: {', '.join(short)}.")
    return notes


def _list_categories(variants: Sequence[VariantRuns]) -> list[tuple[str, int, list[tuple[str, Estimate, bool]]]]:
    """For each task category: its number of tasks, and the mean over seeds of each variant's last evaluation."""
    by_category: dict[str, dict[str, list[TaskSetScore]]] = {}
    for variant in variants:
        for category in (category for run in variant.runs if run.verdict for category in run.verdict.categories):
            by_category.setdefault(category.name, {}).setdefault(variant.name, []).append(category.after)
    categories = []
    for name, of_variants in sorted(by_category.items()):
        rows = [
            (
                variant,
                estimate_mean(np.array([[score.value] for score in scores]), resamples=RESAMPLES),
                len(scores) > 1,
            )
            for variant, scores in of_variants.items()
        ]
        categories.append((name, max(score.tasks for scores in of_variants.values() for score in scores), rows))
    return categories


def _compare_settings(variants: Sequence[VariantRuns]) -> dict[str, Any] | None:
    """The settings in which variants differ; None if there are none."""
    settings = [flatten_shared(variant.runs[0].settings) for variant in variants]
    differing = find_differing(settings)
    rows = [(path, [str(flat.get(path, NO_NUMBER)) for flat in settings]) for path in differing[:MAX_SETTINGS]]
    return {"rows": rows, "more": len(differing) - len(rows)} if rows else None


def _draw_strip(estimate: Estimate, low: float, high: float, colour: str, *, mark: float | None = None) -> Html:
    """An estimate on a line from `low` to `high`: a dot, its interval, and a `mark` to compare with."""
    width, height = 200.0, 16.0
    across, middle = charts.Axis(low, high if high > low else low + 1.0, 6.0, width - 6.0, ()), height / 2
    marked = None
    if mark is not None:
        marked = tag("line", x1=across.place(mark), x2=across.place(mark), y1=0.0, y2=height, class_="zero")
    bounds = across.place(estimate.low), across.place(estimate.high)
    return tag(
        "svg",
        tag("line", x1=0.0, x2=width, y1=middle, y2=middle, class_="grid"),
        marked,
        tag("line", x1=bounds[0], x2=bounds[1], y1=middle, y2=middle, class_="reach"),
        tag("circle", cx=across.place(estimate.value), cy=middle, r="4.5"),
        class_=f"estimate {colour}",
        viewBox=f"0 0 {width:.0f} {height:.0f}",
        aria_hidden="true",
    )


# Curves of several variants in one chart: a line each, and a band for the interval over seeds.

MAX_SPOTS = 20
"""Points of a curve with a tooltip."""


@dataclass(frozen=True, kw_only=True)
class VariantChart:
    """A number of several variants, drawn along each axis. A fraction is shown in percent."""

    title: str
    meaning: str
    curves: Sequence[VariantCurve]
    is_share: bool
    width: float = charts.WIDTH
    height: float = charts.HEIGHT

    def format_estimate(self, mean: Estimate) -> str:
        if mean.low == mean.high:
            return format_score(mean.value, self.is_share)
        return format_interval(mean.value, (mean.low, mean.high), self.is_share)


def _draw_curves(
    variants: Sequence[VariantRuns], results: Results | None, axes: Sequence[str]
) -> dict[str, Any] | None:
    hero, cards = None, []
    if results is not None:
        is_share = results.measure == "success"
        chart = VariantChart(
            title="Evaluation" if is_share else "Final score in evaluations",
            meaning=f"{'Success' if is_share else 'Mean final score'} on the {results.name} set, mean over seeds.",
            curves=make_score_curves(variants, axes),
            is_share=is_share,
            width=640.0,
            height=230.0,
        )
        hero = _draw_variants_card(chart, axes, kind="card hero")
    for name, title in MAIN_CURVES.items():
        curves, metric = make_metric_curves(variants, name, axes), find_metric(name)
        if curves:
            is_share = metric is not None and metric.unit == SHARE
            meaning = f"{metric.meaning[:1].upper()}{metric.meaning[1:]}." if metric else ""
            cards.append(
                _draw_variants_card(VariantChart(title=title, meaning=meaning, curves=curves, is_share=is_share), axes)
            )
    return {"hero": hero, "cards": cards} if cards or hero else None


def _draw_variants_card(chart: VariantChart, axes: Sequence[str], *, kind: str = "card") -> Html:
    """A chart with its title and meaning, drawn along every axis. The page's switch shows one of them."""
    windows = {curve.window for curve in chart.curves if curve.window}
    meaning = chart.meaning + (f" Mean of {max(windows)} updates." if windows else "")
    drawings = join(*(tag("div", _draw_variants(chart, axis), class_=f"by by-{axis}") for axis in axes))
    return charts.draw_card(chart.title, "", drawings, meaning, kind=kind)


def _draw_variants(chart: VariantChart, axis: str) -> Html:
    farthest = max((point.places[axis] for curve in chart.curves for point in curve.points), default=1.0)
    across, describe_place = make_cost_axis(axis, farthest, charts.LEFT + 4, chart.width - 14)
    bounds = [bound for curve in chart.curves for point in curve.points for bound in (point.mean.low, point.mean.high)]
    up = charts.make_value_axis(bounds, chart.height - charts.BOTTOM, charts.TOP, share=chart.is_share)
    bands, lines, spots = [], [], []
    for curve in chart.curves:
        colour = name_colour(curve.variant)
        if curve.num_runs > 1:
            low, high = (
                [(point.places[axis], getattr(point.mean, bound)) for point in curve.points]
                for bound in ("low", "high")
            )
            bands.append(charts.draw_band(across, up, low, high, f"over-seeds {colour}"))
        points = [(point.places[axis], point.mean.value) for point in curve.points]
        dots = [tag("circle", cx=across.place(x), cy=up.place(y), r="2.2") for x, y in points]
        line = charts.draw_line(across, up, points)
        lines.append(tag("g", line, dots if len(points) <= charts.MAX_DOTS else [], class_=f"of-variant {colour}"))
        for point in curve.points[:: -max(1, -(-len(curve.points) // MAX_SPOTS))]:  # the last one is among them
            where = describe_place(point.places[axis])
            update = "" if where == f"update {point.number:,}" else f", update {point.number:,}"
            words = f"{curve.name}, {where}{update}: {chart.format_estimate(point.mean)}"
            x, y = across.place(point.places[axis]), up.place(point.mean.value)
            spots.append(tag("g", tag("title", words), tag("circle", cx=x, cy=y, r="6")))
    ends = [f"{curve.name} {chart.format_estimate(curve.points[-1].mean)}" for curve in chart.curves]
    label = f"{chart.title} by {TITLES[axis]}: at the end {', '.join(ends)}"
    pieces = [*bands, *lines, tag("g", spots, class_="spots")]
    return charts.draw_chart(across, up, pieces, label=label, size=(chart.width, chart.height))


# The axes of the curves: updates, steps, tokens, time.

UNITS = ((3600.0, "h"), (60.0, "min"), (1.0, "s"))
POWERS = ((1e9, "G"), (1e6, "M"), (1e3, "k"), (1.0, ""))
NUM_TICKS = 4
MIN_UNITS = 3
"""A larger unit of time is used from this many units on."""
DESCRIBE_PLACE: dict[str, Callable[[float], str]] = {
    UPDATES: "update {:,.0f}".format,
    STEPS: lambda place: format_count(round(place), "step"),
    TOKENS: lambda place: format_count(round(place), "token"),
    TIME: format_seconds,
}


def make_cost_axis(kind: str, high: float, start: float, end: float) -> tuple[charts.Axis, Callable[[float], str]]:
    """An axis from 0 to the end of the longest curve, and a function that describes a place on it."""
    if kind == UPDATES:
        return charts.make_update_axis((0, round(high)), start, end), DESCRIBE_PLACE[kind]
    units, least = (UNITS, MIN_UNITS) if kind == TIME else (POWERS, 1)
    unit, name = next(((unit, name) for unit, name in units if high >= least * unit), units[-1])
    step = unit * charts.round_up_step((high or 1.0) / unit / NUM_TICKS)
    ticks = tuple(step * number for number in range(int(high / step + 1e-9) + 1))

    def label(tick: float) -> str:
        return f"{tick / unit:.3g}{THIN_SPACE}{name}".rstrip(THIN_SPACE) if tick else "0"

    return charts.Axis(0.0, high or 1.0, start, end, ticks, label), DESCRIBE_PLACE[kind]
