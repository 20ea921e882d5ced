"""The page of several runs: arms over seeds, curves over each other, families, runs, settings; one file."""

from __future__ import annotations

from collections.abc import Sequence

from groupwise.reports.run.number_format import INTERVAL_LEVEL, format_count, shorten_hash
from groupwise.reports.run.page.headline_and_verdict import name_kind
from groupwise.reports.run.page.markup import Html, tag
from groupwise.reports.run.page.page import wrap_page
from groupwise.reports.run.page.sections import MAIN_CURVES, make_section
from groupwise.reports.runs.arm_curves import find_axes, make_metric_curves, make_score_curves
from groupwise.reports.runs.page import tables
from groupwise.reports.runs.page.charts import ArmChart, draw_chart_card, name_colour
from groupwise.reports.runs.page.cost_axes import TITLES
from groupwise.reports.runs.read_runs import ArmRuns
from groupwise.reports.runs.results import Results, sum_up
from groupwise.training.metrics.metric import SHARE
from groupwise.training.metrics.table import find_metric

NAMES = {"curves": "Curves", "families": "Families", "pairs": "Arm by arm", "runs": "Runs", "settings": "Settings"}
"""What the sections are called in the list at the top."""
STYLES = (("groupwise.reports.run.page", "page.css"), ("groupwise.reports.runs.page", "runs.css"))
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
        tables.write_arm_table(results, colours),
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
    return make_section("pairs", "Arm by arm", tables.write_improvement_table(results, colours), lead=lead)


def _write_families_section(arms: Sequence[ArmRuns], results: Results | None, colours: dict[str, int]) -> Html | None:
    table = tables.write_family_table(arms, results, colours) if results else None
    if table is None:
        return None
    lead = "The last evaluations by kind of task: means over seeds, with intervals over seeds."
    return make_section("families", "By family", table, lead=lead)


def _write_runs_section(results: Results | None, colours: dict[str, int]) -> Html | None:
    if results is None:
        return None
    table = tables.write_run_table(results, colours)
    return make_section("runs", "Run by run", tag("div", table, class_="scroll"))


def _write_settings_section(arms: Sequence[ArmRuns]) -> Html | None:
    table = tables.write_setting_table(arms)
    if table is None:
        return None
    return make_section("settings", "What differs", tag("div", table, class_="scroll"))
