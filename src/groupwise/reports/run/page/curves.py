"""Curves of metrics over updates as SVG: a line, its axes, and what each point says when pointed at."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from groupwise.evaluation.verdict import PanelScore
from groupwise.reports.run.number_format import NO_NUMBER, format_compact, format_number, format_percent
from groupwise.reports.run.page.axes import Axis, make_update_axis, make_value_axis
from groupwise.reports.run.page.markup import Html, tag

WIDTH, HEIGHT = 340.0, 172.0
LEFT, RIGHT, TOP, BOTTOM = 44.0, 8.0, 10.0, 24.0
MAX_DOTS = 30
"""Up to so many points each has a dot."""
MAX_PLAIN = 60
"""Above so many points a running mean is drawn over the line."""
MAX_HINTS = 60
"""How many points of a curve say their number when pointed at."""

Point = tuple[int, float]


@dataclass(frozen=True, kw_only=True)
class Curve:
    """A number over updates."""

    title: str
    """What it is called."""
    meaning: str
    """What it says, in a sentence."""
    points: Sequence[Point]
    """Its value by update, in order; where one is missing the line breaks."""
    span: tuple[int, int]
    """The first and the last update of its axis."""
    is_share: bool = False
    """Whether it is shown in per cent, from 0 to 100."""
    scores: Sequence[PanelScore] = ()
    """Evaluations to show beside it, as dots with their intervals."""

    def format_value(self, value: float) -> str:
        """A value as it is shown."""
        return format_percent(value) if self.is_share else format_compact(value)


def draw_curve_card(curve: Curve) -> Html:
    """A curve with its title, its last value and its meaning."""
    last = curve.format_value(curve.points[-1][1]) if curve.points else NO_NUMBER
    window = choose_window(len(curve.points))
    meaning = curve.meaning + (f" Dark line: mean of {window} updates." if window else "")
    return tag(
        "figure",
        tag("figcaption", tag("h3", curve.title), tag("span", last, class_="last")),
        draw_curve(curve),
        tag("p", meaning, class_="meaning"),
        class_="card",
    )


def draw_curve(curve: Curve) -> Html:
    """The drawing of a curve."""
    across = make_update_axis(curve.span, LEFT + 4, WIDTH - RIGHT - 4)
    bounds = [bound for score in curve.scores for bound in score.interval]
    up = make_value_axis([value for _, value in curve.points] + bounds, HEIGHT - BOTTOM, TOP, share=curve.is_share)
    return tag(
        "svg",
        draw_axes(across, up, _make_tick_format(curve, up)),
        _draw_lines(curve.points, across, up),
        [_draw_score(score, across, up) for score in curve.scores],
        _draw_hints(curve, across, up),
        class_="chart",
        viewBox=f"0 0 {WIDTH:.0f} {HEIGHT:.0f}",
        role="img",
        aria_label=_describe_curve(curve),
    )


def choose_window(num_points: int) -> int:
    """How many updates a running mean spans; 0 = the line itself is calm enough to read."""
    return 0 if num_points <= MAX_PLAIN else max(5, num_points // 25 | 1)


def smooth_points(points: Sequence[Point], window: int) -> list[Point]:
    """Means over a window about each point, smaller towards the ends."""
    half = window // 2
    means = []
    for place, (number, _) in enumerate(points):
        reach = min(half, place, len(points) - 1 - place)
        near = [value for _, value in points[place - reach : place + reach + 1]]
        means.append((number, sum(near) / len(near)))
    return means


def split_at_gaps(points: Sequence[Point]) -> Iterator[Sequence[Point]]:
    """The stretches without a missing update, at the distance that the curve's points usually have."""
    gaps = [after - before for (before, _), (after, _) in pairwise(points)]
    first = 0
    for place, gap in enumerate(gaps, start=1):
        if gap > min(gaps):
            yield points[first:place]
            first = place
    if points:
        yield points[first:]


def draw_axes(across: Axis, up: Axis, words: Callable[[float], str]) -> Html:
    """Lines and labels of the axes."""
    pieces = []
    for tick in up.ticks:
        y = up.place(tick)
        pieces.append(tag("line", x1=LEFT, x2=WIDTH - RIGHT, y1=y, y2=y, class_="zero" if tick == 0 else "grid"))
        pieces.append(tag("text", words(tick), x=LEFT - 7, y=y + 3.5, text_anchor="end"))
    for tick in across.ticks:
        x = across.place(tick)
        pieces.append(tag("text", f"{tick:,.0f}", x=x, y=HEIGHT - BOTTOM + 17, text_anchor="middle"))
    return tag("g", pieces, class_="frame")


def _draw_lines(points: Sequence[Point], across: Axis, up: Axis) -> list[Html]:
    window = choose_window(len(points))
    drawn = [_draw_line(stretch, across, up, "raw" if window else "line") for stretch in split_at_gaps(points)]
    if window:
        drawn += [_draw_line(smooth_points(stretch, window), across, up, "line") for stretch in split_at_gaps(points)]
    elif len(points) <= MAX_DOTS:
        drawn += [_draw_dot(point, across, up) for point in points]
    else:
        drawn += [_draw_dot(stretch[0], across, up) for stretch in split_at_gaps(points) if len(stretch) == 1]
    return drawn


def _draw_line(points: Sequence[Point], across: Axis, up: Axis, kind: str) -> Html:
    places = " ".join(f"{across.place(number):.1f},{up.place(value):.1f}" for number, value in points)
    return tag("polyline", points=places, class_=kind)


def _draw_dot(point: Point, across: Axis, up: Axis) -> Html:
    return tag("circle", cx=across.place(point[0]), cy=up.place(point[1]), r="2.2", class_="dot")


def _draw_score(score: PanelScore, across: Axis, up: Axis) -> Html:
    """An evaluation: a dot, and a whisker as long as its interval."""
    x = across.place(score.number)
    low, high = score.interval
    return tag(
        "g",
        tag("line", x1=x, x2=x, y1=up.place(low), y2=up.place(high)),
        tag("circle", cx=x, cy=up.place(score.value), r="3.6"),
        class_="score",
    )


def _draw_hints(curve: Curve, across: Axis, up: Axis) -> Html:
    """Columns that say a point's number when pointed at."""
    chosen = pick_evenly(curve.points, MAX_HINTS)
    width = (across.end - across.start) / max(len(chosen), 1)
    pieces = []
    scores = {score.number: score for score in curve.scores}
    for number, value in chosen:
        x = across.place(number)
        hint = f"update {number}: {curve.format_value(value)}"
        if number in scores:
            hint += f"; evaluation {format_interval(scores[number], is_share=curve.is_share)}"
        pieces.append(
            tag(
                "g",
                tag("title", hint),
                tag("rect", x=x - width / 2, y=TOP, width=width, height=HEIGHT - TOP - BOTTOM),
                tag("circle", cx=x, cy=up.place(value), r="3.5"),
            )
        )
    return tag("g", pieces, class_="hints")


def format_interval(score: PanelScore, *, is_share: bool) -> str:
    """A score with its interval."""
    low, high = score.interval
    if is_share:
        return f"{format_percent(score.value)} [{format_number(100 * low, 1)}, {format_number(100 * high, 1)}]"
    return f"{format_compact(score.value)} [{format_compact(low)}, {format_compact(high)}]"


def pick_evenly(points: Sequence[Point], max_points: int) -> Sequence[Point]:
    """So many points at equal distances, the first and the last among them."""
    if len(points) <= max_points:
        return points
    return [points[round(place * (len(points) - 1) / (max_points - 1))] for place in range(max_points)]


def _make_tick_format(curve: Curve, up: Axis) -> Callable[[float], str]:
    if not curve.is_share:
        # Sums of a step leave a last digit of rounding: 0.30000000000000004.
        return lambda tick: format_compact(0.0 if abs(tick) < 1e-9 * (up.high - up.low) else tick)
    return lambda tick: format_percent(tick, 0)


def _describe_curve(curve: Curve) -> str:
    if not curve.points:
        return f"{curve.title}: no number yet"
    (first, start), (last, end) = curve.points[0], curve.points[-1]
    return f"{curve.title}: {curve.format_value(start)} at update {first}, {curve.format_value(end)} at update {last}"
