"""Curves of several arms over each other as SVG: a line each, and a band as wide as the interval over its seeds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from groupwise.evaluation.over_seeds import Estimate
from groupwise.reports.run.number_format import format_compact, format_number, format_percent
from groupwise.reports.run.page.axes import Axis, make_value_axis
from groupwise.reports.run.page.curves import MAX_DOTS
from groupwise.reports.run.page.markup import Html, tag
from groupwise.reports.runs.arm_curves import ArmCurve, CurvePoint
from groupwise.reports.runs.page.cost_axes import TITLES, CostAxis, make_cost_axis

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
