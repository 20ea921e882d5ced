"""The page of several runs: arms over seeds, curves over each other, families, runs, settings; one file."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from groupwise.parts.part import flatten_settings
from groupwise.report.charts import MAX_DOTS, Axis, make_update_axis, make_value_axis, round_up_step
from groupwise.report.markup import Html, cut_text, tag
from groupwise.report.number_format import (
    INTERVAL_LEVEL,
    NO_NUMBER,
    THIN_SPACE,
    format_compact,
    format_count,
    format_number,
    format_percent,
    format_seconds,
    shorten_hash,
)
from groupwise.report.page import name_kind, wrap_page
from groupwise.report.page_sections import MAIN_CURVES, make_section
from groupwise.report.runs import (
    EVEN,
    OWN_SETTINGS,
    RESAMPLES,
    STEPS,
    TIME,
    TOKENS,
    UPDATES,
    ArmCurve,
    ArmResult,
    ArmRuns,
    CurvePoint,
    Results,
    SeedResult,
    find_axes,
    make_metric_curves,
    make_score_curves,
    sum_up,
)
from groupwise.training.evaluation.over_seeds import Estimate, estimate_mean
from groupwise.training.evaluation.summary import PanelScore
from groupwise.training.metrics import SHARE, find_metric

NAMES = {"curves": "Curves", "families": "Families", "pairs": "Arm by arm", "runs": "Runs", "settings": "Settings"}
"""What the sections are called in the list at the top."""
STYLES = (("groupwise.report", "page.css"), ("groupwise.report", "runs.css"))
MAX_NAMED = 4
"""How many arms the headline names."""


def render_runs_page(arms: Sequence[ArmRuns], *, name: str) -> str:
    """Several runs as HTML; the same folders give the same bytes. An error where they played different tasks.

    Args:
        arms: the runs, those of an arm together.
        name: what they are called together.
    """
    results = sum_up(arms)
    colours = {arm.name: place for place, arm in enumerate(arms)}
    by_name = {
        "verdict": _write_results_section(results, arms, colours),
        "curves": _write_curves_section(arms, results),
        "pairs": _write_pairs_section(results, colours),
        "families": _write_families_section(arms, results, colours),
        "runs": _write_runs_section(results, colours),
        "settings": _write_settings_section(arms),
    }
    links = [tag("a", NAMES[key], href=f"#{key}") for key, content in by_name.items() if content and key in NAMES]
    body = tag(
        "main",
        _write_headline(arms, results, name),
        tag("nav", links, aria_label="Sections"),
        list(filter(None, by_name.values())),
        tag("footer", "Read from the runs' journals by ", tag("b", "groupwise report"), "."),
    )
    return wrap_page(_name_page(arms), name, body, STYLES)


def _name_page(arms: Sequence[ArmRuns]) -> str:
    if len(arms) == 1:
        return arms[0].name
    names = ", ".join(arm.name for arm in arms)
    return names if len(arms) <= MAX_NAMED and len(names) <= 60 else format_count(len(arms), "arm")


def _write_headline(arms: Sequence[ArmRuns], results: Results | None, name: str) -> Html:
    runs = [run for arm in arms for run in arm.runs]
    made, planned = {len(run.updates) for run in runs}, {run.planned for run in runs}
    updates = " to ".join(f"{number:,}" for number in sorted({min(made), max(made)}))
    of = f" of {max(planned):,}" if planned != made and None not in planned else ""  # type: ignore[type-var]
    facts = {
        "runs": f"{format_count(len(arms), 'arm')}, {format_count(len(runs), 'run')}",
        "environment": ", ".join(_list_kinds(arms, "env")),
        "model": ", ".join(_list_kinds(arms, "model")),
        "updates": updates + of,
    }
    if results is not None:
        facts["panel"] = f"{format_count(results.tasks, 'task')} of {results.split} ({shorten_hash(results.panel)})"
    return tag(
        "header",
        tag("p", "groupwise", tag("span", name), class_="eyebrow"),
        tag("h1", tag("span", _name_page(arms))),
        tag("dl", [tag("div", tag("dt", key), tag("dd", value)) for key, value in facts.items()], class_="facts"),
        class_="headline",
    )


def _list_kinds(arms: Sequence[ArmRuns], section: str) -> list[str]:
    kinds = dict.fromkeys(name_kind(run.settings.get(section)) for arm in arms for run in arm.runs)
    return [kind for kind in kinds if kind]


def _write_results_section(results: Results | None, arms: Sequence[ArmRuns], colours: dict[str, int]) -> Html:
    if results is None:
        words = "None of these runs was evaluated on a fixed panel, so that there is nothing to rank them by."
        return tag("section", tag("p", words, class_="sentence"), id="verdict", class_="verdict")
    what = "Success" if results.measure == "success" else "Mean outcome"
    lead = (
        f"{what} on the {results.split} panel: interquartile mean over seeds, with {INTERVAL_LEVEL} bootstrap "
        "intervals. Last: at the last evaluation. Best: at each run's best one, which the same panel chose, so it "
        "flatters."
    )
    return tag(
        "section",
        tag("h2", "Over seeds"),
        tag("p", lead, class_="lead"),
        write_arm_table(results, colours),
        [tag("p", note, class_="meaning note") for note in _list_notes(results, arms)],
        id="verdict",
        class_="verdict",
    )


def _list_notes(results: Results, arms: Sequence[ArmRuns]) -> list[str]:
    """What must be known to read the numbers right."""
    notes = []
    few = [arm.name for arm in results.arms if len(arm.seeds) < 3]
    if few:
        notes.append(f"An interval over fewer than three seeds says little: {', '.join(few)}.")
    if results.missing:
        notes.append(f"Not evaluated yet, and not counted: {', '.join(results.missing)}.")
    short = [
        f"{arm.name} seed {run.seed} ({len(run.updates)} of {run.planned})"
        for arm in arms
        for run in arm.runs
        if run.verdict and run.planned and len(run.updates) < run.planned
    ]
    if short:
        notes.append(f"Not finished, and counted as far as they are: {', '.join(short)}.")
    return notes


def _write_curves_section(arms: Sequence[ArmRuns], results: Results | None) -> Html | None:
    axes = find_axes(arms)
    charts = _list_charts(arms, axes)
    if results is not None:
        is_share = results.measure == "success"
        scores = ArmChart(
            title="Evaluation" if is_share else "Outcome of evaluations",
            meaning=f"{'Success' if is_share else 'Mean outcome'} on the {results.split} panel, mean over seeds.",
            curves=make_score_curves(arms, axes),
            is_share=is_share,
            width=640.0,
            height=230.0,
        )
        hero = draw_chart_card(scores, axes, kind="card hero")
    else:
        hero = None
    if not charts and hero is None:
        return None
    switch = [
        tag("input", type="radio", name="axis", id=f"axis-{axis}", checked=place == 0, class_="axis")
        for place, axis in enumerate(axes)
    ]
    labels = [tag("label", TITLES[axis], for_=f"axis-{axis}") for axis in axes]
    legend = [
        tag("span", tag("i", class_=f"swatch {name_colour(place)}"), arm.name, class_="entry")
        for place, arm in enumerate(arms)
    ]
    return make_section(
        "curves",
        "Over each other",
        switch,
        tag("div", tag("span", "by", class_="word"), labels, class_="switch"),
        tag("p", legend, class_="legend"),
        hero,
        tag("div", [draw_chart_card(chart, axes) for chart in charts], class_="cards"),
        lead=f"Lines are means over an arm's seeds, bands their {INTERVAL_LEVEL} intervals; a single run has no band.",
    )


def _list_charts(arms: Sequence[ArmRuns], axes: Sequence[str]) -> list[ArmChart]:
    charts = []
    for name, title in MAIN_CURVES.items():
        curves, metric = make_metric_curves(arms, name, axes), find_metric(name)
        if curves:
            is_share = metric is not None and metric.unit == SHARE
            meaning = f"{metric.meaning[:1].upper()}{metric.meaning[1:]}." if metric else ""
            charts.append(ArmChart(title=title, meaning=meaning, curves=curves, is_share=is_share))
    return charts


def _write_pairs_section(results: Results | None, colours: dict[str, int]) -> Html | None:
    if results is None or not results.improvements:
        return None
    lead = (
        "Probability that a run of the first arm does better than one of the second at the last evaluation, ties "
        "counted half; 0.5 says that neither is better."
    )
    return make_section("pairs", "Arm by arm", write_improvement_table(results, colours), lead=lead)


def _write_families_section(arms: Sequence[ArmRuns], results: Results | None, colours: dict[str, int]) -> Html | None:
    table = write_family_table(arms, results, colours) if results else None
    if table is None:
        return None
    lead = "The last evaluations by kind of task: means over seeds, with intervals over seeds."
    return make_section("families", "By family", table, lead=lead)


def _write_runs_section(results: Results | None, colours: dict[str, int]) -> Html | None:
    if results is None:
        return None
    table = write_run_table(results, colours)
    return make_section("runs", "Run by run", tag("div", table, class_="scroll"))


def _write_settings_section(arms: Sequence[ArmRuns]) -> Html | None:
    table = write_setting_table(arms)
    if table is None:
        return None
    return make_section("settings", "What differs", tag("div", table, class_="scroll"))


# The tables of a page of several runs: arms over seeds, arms against each other, families, runs, settings.

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


# Curves of several arms over each other as SVG: a line each, and a band as wide as the interval over its seeds.

NUM_COLOURS = 8
"""After so many arms colours come again, with dashed lines."""
MAX_SPOTS = 20
"""How many points of a curve say their number when pointed at."""
LEFT, RIGHT, TOP, BOTTOM = 44.0, 10.0, 10.0, 24.0


@dataclass(frozen=True, kw_only=True)
class ArmChart:
    """A number of several arms, to be drawn along each axis."""

    title: str
    """What it is called."""
    meaning: str
    """What it says, in a sentence."""
    curves: Sequence[ArmCurve]
    """One for each arm that has the number."""
    is_share: bool
    """Whether it is shown in per cent, from 0 to 100."""
    width: float = 340.0
    """Of the drawing, in its own units."""
    height: float = 172.0
    """Of the drawing."""

    def format_value(self, value: float) -> str:
        """A value as it is shown."""
        return format_percent(value) if self.is_share else format_compact(value)

    def format_estimate(self, estimate: Estimate) -> str:
        """A mean with its interval, where it has one."""
        shown = self.format_value(estimate.value)
        if estimate.low == estimate.high:
            return shown
        scale = 100 if self.is_share else 1
        bounds = (estimate.low * scale, estimate.high * scale)
        words = [format_number(bound, 1) if self.is_share else format_compact(bound) for bound in bounds]
        return f"{shown} [{words[0]}, {words[1]}]"


def name_colour(arm: int) -> str:
    """The class that gives an arm its colour.

    >>> name_colour(1), name_colour(9)
    ('arm1', 'arm1 again')
    """
    return f"arm{arm % NUM_COLOURS}" + (" again" if arm >= NUM_COLOURS else "")


def draw_chart_card(chart: ArmChart, axes: Sequence[str], *, kind: str = "card") -> Html:
    """A chart with its title and meaning, drawn along every axis; the page's switch shows one of them."""
    windows = {curve.window for curve in chart.curves if curve.window}
    meaning = chart.meaning + (f" Mean of {max(windows)} updates." if windows else "")
    return tag(
        "figure",
        tag("figcaption", tag("h3", chart.title)),
        [tag("div", draw_chart(chart, axis), class_=f"by by-{axis}") for axis in axes],
        tag("p", meaning, class_="meaning"),
        class_=kind,
    )


def draw_chart(chart: ArmChart, axis: str) -> Html:
    """The curves along one axis."""
    high = max((point.places[axis] for curve in chart.curves for point in curve.points), default=1.0)
    across = make_cost_axis(axis, high, LEFT + 4, chart.width - RIGHT - 4)
    bounds = [bound for curve in chart.curves for point in curve.points for bound in (point.mean.low, point.mean.high)]
    up = make_value_axis(bounds, chart.height - BOTTOM, TOP, share=chart.is_share)
    return tag(
        "svg",
        _draw_frame(chart, across, up),
        [_draw_band(curve, axis, across, up) for curve in chart.curves if curve.num_runs > 1],
        [_draw_line(curve, axis, across, up) for curve in chart.curves],
        _draw_hints(chart, axis, across, up),
        class_="chart",
        viewBox=f"0 0 {chart.width:.0f} {chart.height:.0f}",
        role="img",
        aria_label=_describe(chart, axis),
    )


def _draw_frame(chart: ArmChart, across: CostAxis, up: Axis) -> Html:
    pieces = []
    for tick in up.ticks:
        y = up.place(tick)
        kind = "zero" if tick == 0 else "grid"
        pieces.append(tag("line", x1=LEFT, x2=chart.width - RIGHT, y1=y, y2=y, class_=kind))
        # Sums of a step leave a last digit of rounding: 0.30000000000000004.
        value = 0.0 if abs(tick) < 1e-9 * (up.high - up.low) else tick
        words = format_percent(value, 0) if chart.is_share else format_compact(value)
        pieces.append(tag("text", words, x=LEFT - 7, y=y + 3.5, text_anchor="end"))
    for tick in across.axis.ticks:
        x, y = across.axis.place(tick), chart.height - BOTTOM + 17
        pieces.append(tag("text", across.label(tick), x=x, y=y, text_anchor="middle"))
    return tag("g", pieces, class_="frame")


def _draw_band(curve: ArmCurve, axis: str, across: CostAxis, up: Axis) -> Html:
    edge = [(point.places[axis], point.mean.high) for point in curve.points]
    edge += [(point.places[axis], point.mean.low) for point in reversed(curve.points)]
    places = " L".join(f"{across.axis.place(x):.1f},{up.place(y):.1f}" for x, y in edge)
    return tag("path", d=f"M{places}Z", class_=f"over-seeds {name_colour(curve.arm)}")


def _draw_line(curve: ArmCurve, axis: str, across: CostAxis, up: Axis) -> Html:
    places = [(across.axis.place(point.places[axis]), up.place(point.mean.value)) for point in curve.points]
    dots = [tag("circle", cx=x, cy=y, r="2.2") for x, y in places] if len(places) <= MAX_DOTS else []
    line = tag("polyline", points=" ".join(f"{x:.1f},{y:.1f}" for x, y in places))
    return tag("g", line, dots, class_=f"of-arm {name_colour(curve.arm)}")


def _draw_hints(chart: ArmChart, axis: str, across: CostAxis, up: Axis) -> Html:
    """What each point says when pointed at: a spot around it, the arm that is drawn last on top."""
    pieces = [
        tag(
            "g",
            tag("title", _describe_point(chart, curve, point, across.describe(point.places[axis]))),
            tag("circle", cx=across.axis.place(point.places[axis]), cy=up.place(point.mean.value), r="6"),
        )
        for curve in chart.curves
        for point in curve.points[:: -max(1, -(-len(curve.points) // MAX_SPOTS))]  # the last one is among them
    ]
    return tag("g", pieces, class_="spots")


def _describe_point(chart: ArmChart, curve: ArmCurve, point: CurvePoint, where: str) -> str:
    update = "" if where == f"update {point.number:,}" else f", update {point.number:,}"
    return f"{curve.name}, {where}{update}: {chart.format_estimate(point.mean)}"


def _describe(chart: ArmChart, axis: str) -> str:
    ends = [f"{curve.name} {chart.format_estimate(curve.points[-1].mean)}" for curve in chart.curves]
    return f"{chart.title} by {TITLES[axis]}: at the end {', '.join(ends)}"


# The axes that curves of several runs can be drawn along: updates, steps, tokens, time.

TITLES = {UPDATES: "updates", STEPS: "environment steps", TOKENS: "sampled tokens", TIME: "time"}
"""What the axes are called, in the switch and in sentences."""
UNITS = ((3600.0, "h"), (60.0, "min"), (1.0, "s"))
POWERS = ((1e9, "G"), (1e6, "M"), (1e3, "k"), (1.0, ""))
NUM_TICKS = 4
MIN_UNITS = 3
"""A unit of time is used from so many of it on."""


@dataclass(frozen=True)
class CostAxis:
    """An axis with the words for its values."""

    axis: Axis
    """Where values lie."""
    label: Callable[[float], str]
    """A tick in words."""
    describe: Callable[[float], str]
    """A place in words, for what is shown when pointed at."""


def make_cost_axis(kind: str, high: float, start: float, end: float) -> CostAxis:
    """An axis from 0 to what the longest curve cost."""
    if kind == UPDATES:
        axis = make_update_axis((0, round(high)), start, end)
        return CostAxis(axis, lambda tick: f"{tick:,.0f}", lambda place: f"update {place:,.0f}")
    unit, name = _choose_unit(kind, high)
    step = unit * round_up_step((high or 1.0) / unit / NUM_TICKS)
    ticks = tuple(step * number for number in range(int(high / step + 1e-9) + 1))
    axis = Axis(0.0, high or 1.0, start, end, ticks)
    return CostAxis(axis, lambda tick: _format_tick(tick / unit, name), _DESCRIBE[kind])


def _choose_unit(kind: str, high: float) -> tuple[float, str]:
    if kind == TIME:
        return next(((unit, name) for unit, name in UNITS if high >= MIN_UNITS * unit), UNITS[-1])
    return next(((unit, name) for unit, name in POWERS if high >= unit), POWERS[-1])


def _format_tick(number: float, unit: str) -> str:
    return "0" if not number else f"{number:.3g}{THIN_SPACE}{unit}".rstrip(THIN_SPACE)


_DESCRIBE: dict[str, Callable[[float], str]] = {
    STEPS: lambda place: format_count(round(place), "step"),
    TOKENS: lambda place: format_count(round(place), "token"),
    TIME: format_seconds,
}
