"""Curves of metrics over updates as SVG: a line, its axes, and what each point says when pointed at."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from groupwise.report.markup import Html, join, tag
from groupwise.report.number_format import (
    NO_NUMBER,
    format_compact,
    format_count,
    format_number,
    format_percent,
    format_seconds,
    format_signed,
)
from groupwise.training.evaluation.summary import PanelScore

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


# Axes of a chart: round ticks, and where a value lies.

STEPS = (1, 2, 5, 10)


@dataclass(frozen=True)
class Axis:
    """From values to places along a line, in pixels."""

    low: float
    """The value at the start."""
    high: float
    """The value at the end; above `low`."""
    start: float
    """Where the low value lies."""
    end: float
    """Where the high value lies; before `start` for an axis that points upwards."""
    ticks: tuple[float, ...]
    """Values that are labelled."""

    def place(self, value: float) -> float:
        """Where a value lies."""
        return self.start + (value - self.low) / (self.high - self.low) * (self.end - self.start)


def make_value_axis(values: Sequence[float], start: float, end: float, *, share: bool = False) -> Axis:
    """An axis that holds all values, from round number to round number; shares always run from 0 to 1."""
    if share and all(0 <= value <= 1 for value in values):
        return Axis(0.0, 1.0, start, end, (0.0, 0.25, 0.5, 0.75, 1.0))
    low, high = (min(values), max(values)) if values else (0.0, 1.0)
    if 0 < low < 0.5 * high:
        low = 0.0  # not far from zero: show it
    if high < 0 and high > 0.5 * low:
        high = 0.0
    if high - low <= 1e-12 * max(abs(low), abs(high)):
        room = abs(high) / 2 or 1.0
        low, high = (0.0, 1.25 * high) if high > 0 else (low - room, high + room)
    step = round_up_step((high - low) / 4)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    ticks = tuple(number * step for number in range(first, last + 1))
    return Axis(ticks[0], ticks[-1], start, end, ticks)


def make_update_axis(numbers: Sequence[int], start: float, end: float) -> Axis:
    """An axis over updates, from the first to the last, with round whole numbers."""
    low, high = (min(numbers), max(numbers)) if numbers else (0, 1)
    if low == high:
        return Axis(low - 1, high + 1, start, end, (float(low),))
    step = max(1, math.ceil(round_up_step((high - low) / 5)))
    ticks = tuple(float(number) for number in range(-(-low // step) * step, high + 1, step))
    return Axis(low, high, start, end, ticks)


def round_up_step(min_step: float) -> float:
    """The smallest of 1, 2 or 5 times a power of ten that is at least so large.

    >>> round_up_step(0.03), round_up_step(17), round_up_step(200)
    (0.05, 20.0, 200.0)
    """
    power = 10.0 ** math.floor(math.log10(min_step))
    return next(step * power for step in STEPS if step * power >= min_step * (1 - 1e-9))


# Shares of a whole over updates as SVG: bands on top of one another.


def draw_bands_card(title: str, meaning: str, shares: Mapping[str, Mapping[int, float]], span: tuple[int, int]) -> Html:
    """Shares by name and update as bands, the first lowest, with their legend; `meaning` says what they are shares of.

    Updates without all of the shares are left out.
    """
    numbers = sorted(set.intersection(*(set(curve) for curve in shares.values())))
    last = format_percent(1 - list(shares.values())[-1][numbers[-1]]) if numbers else ""
    legend = [
        tag("span", tag("i", class_=f"swatch band{place}"), name, class_="entry") for place, name in enumerate(shares)
    ]
    return tag(
        "figure",
        tag("figcaption", tag("h3", title), tag("span", last, class_="last") if numbers else None),
        _draw_bands(title, shares, numbers, span),
        tag("p", legend, class_="legend"),
        tag("p", meaning, class_="meaning"),
        class_="card",
    )


def _draw_bands(
    title: str, shares: Mapping[str, Mapping[int, float]], numbers: Sequence[int], span: tuple[int, int]
) -> Html:
    across = make_update_axis(span, LEFT + 4, WIDTH - RIGHT - 4)
    up = make_value_axis([0.0, 1.0], HEIGHT - BOTTOM, TOP, share=True)
    below = dict.fromkeys(numbers, 0.0)
    bands = []
    for place, curve in enumerate(shares.values()):
        above = {number: below[number] + curve[number] for number in numbers}
        bands.append(_draw_band(below, above, across, up, f"band{place}"))
        below = above
    return tag(
        "svg",
        bands,
        draw_axes(across, up, lambda tick: format_percent(tick, 0)),
        _draw_band_hints(shares, numbers, across),
        class_="chart bands",
        viewBox=f"0 0 {WIDTH:.0f} {HEIGHT:.0f}",
        role="img",
        aria_label=f"{title}: {_describe_shares(shares, numbers[-1])} at update {numbers[-1]}" if numbers else title,
    )


def _draw_band(below: Mapping[int, float], above: Mapping[int, float], across: Axis, up: Axis, kind: str) -> Html:
    numbers = list(below)
    if len(numbers) == 1:  # one update has no breadth of its own
        x, low, high = across.place(numbers[0]), up.place(below[numbers[0]]), up.place(above[numbers[0]])
        return tag("rect", x=x - 6, y=high, width=12.0, height=low - high, class_=f"band {kind}")
    edge = [(number, above[number]) for number in numbers] + [(number, below[number]) for number in reversed(numbers)]
    places = " L".join(f"{across.place(number):.1f},{up.place(value):.1f}" for number, value in edge)
    return tag("path", d=f"M{places}Z" if edge else "", class_=f"band {kind}")


def _draw_band_hints(shares: Mapping[str, Mapping[int, float]], numbers: Sequence[int], across: Axis) -> Html:
    """Columns that say an update's shares when pointed at."""
    chosen = pick_evenly([(number, 0.0) for number in numbers], MAX_HINTS)
    width = (across.end - across.start) / max(len(chosen), 1)
    pieces = [
        tag(
            "g",
            tag("title", f"update {number}: {_describe_shares(shares, number)}"),
            tag("rect", x=across.place(number) - width / 2, y=TOP, width=width, height=HEIGHT - TOP - BOTTOM),
        )
        for number, _ in chosen
    ]
    return tag("g", pieces, class_="hints")


def _describe_shares(shares: Mapping[str, Mapping[int, float]], number: int) -> str:
    return ", ".join(f"{name} {format_percent(curve[number])}" for name, curve in shares.items())


# Small drawings: intervals, bars, shares of a whole, a histogram, the strip of an attempt's credit.

NUM_BARS = 31
"""Bars of a histogram; odd, so that one of them is about zero."""
SHADES = 6
"""How many shades of the accent colour there are."""


def draw_intervals(scores: Sequence[tuple[str, PanelScore]], *, is_share: bool) -> Html:
    """Scores and their intervals on one axis, a row each."""
    width, row, foot = 400.0, 34.0, 22.0
    bounds = [bound for _, score in scores for bound in score.interval]
    across = make_value_axis(bounds, 12.0, width - 20.0, share=is_share)
    height = row * len(scores) + foot
    pieces = []
    for tick in across.ticks:
        x = across.place(tick)
        pieces.append(tag("line", x1=x, x2=x, y1=4.0, y2=height - foot, class_="grid"))
        words = format_percent(tick, 0) if is_share else format_compact(tick)
        pieces.append(tag("text", words, x=x, y=height - 5, text_anchor="middle"))
    for place, (kind, score) in enumerate(scores):
        y = row * (place + 0.5) + 3
        low, high = (across.place(bound) for bound in score.interval)
        pieces.append(
            tag(
                "g",
                tag("line", x1=low, x2=high, y1=y, y2=y),
                tag("circle", cx=across.place(score.value), cy=y, r="6"),
                class_=f"interval {kind}",
            )
        )
    return tag("svg", pieces, class_="chart", viewBox=f"0 0 {width:.0f} {height:.0f}", aria_hidden="true")


def draw_bar(share: float, kind: str, title: str) -> Html:
    """A bar as long as a share of its column."""
    width = f"width:{100 * min(max(share, 0.0), 1.0):.1f}%"
    return tag("span", tag("span", class_=kind, style=width), class_="bar", title=title)


def draw_stacked_bar(parts: Mapping[str, float]) -> Html:
    """Parts of a whole beside one another, each with its share."""
    whole = sum(parts.values()) or 1.0
    pieces = []
    for place, (name, amount) in enumerate(parts.items()):
        share = amount / whole
        label = tag("b", name, class_="inside") if share > 0.12 else None
        pieces.append(
            tag(
                "span",
                label,
                class_=f"shade{min(place, SHADES - 1)}",
                style=f"flex-grow:{max(share, 0.002):.4f}",
                title=f"{name}: {format_seconds(amount)}, {format_percent(share)}",
            )
        )
    return tag("div", pieces, class_="stacked", role="img", aria_label="where the time went")


def draw_histogram(values: Sequence[float]) -> Html:
    """How many values lie where, in bars about zero."""
    known = [value for value in values if math.isfinite(value)]
    reach = max(map(abs, known), default=0.0) or 1.0
    wide = 2 * reach / NUM_BARS
    counts = [0] * NUM_BARS
    for value in known:
        counts[min(max(math.floor((value + reach) / wide), 0), NUM_BARS - 1)] += 1
    up = make_value_axis([0.0, max(counts) / max(len(values), 1)], HEIGHT - BOTTOM, TOP)
    across = Axis(-reach, reach, LEFT + 4, WIDTH - RIGHT - 4, (-reach, 0.0, reach))
    pieces = []
    for tick in up.ticks:
        y = up.place(tick)
        pieces.append(tag("line", x1=LEFT, x2=WIDTH - RIGHT, y1=y, y2=y, class_="grid" if tick else "zero"))
        pieces.append(tag("text", format_percent(tick, 0), x=LEFT - 7, y=y + 3.5, text_anchor="end"))
    for tick in across.ticks:
        words = format_signed(tick, 2) if tick else "0"
        anchor = "middle" if not tick else "start" if tick < 0 else "end"
        pieces.append(tag("text", words, x=across.place(tick), y=HEIGHT - BOTTOM + 17, text_anchor=anchor))
    pieces += [
        _draw_histogram_bar(-reach + place * wide, wide, count, len(values), across, up)
        for place, count in enumerate(counts)
        if count
    ]
    return tag(
        "svg",
        pieces,
        class_="chart",
        viewBox=f"0 0 {WIDTH:.0f} {HEIGHT:.0f}",
        role="img",
        aria_label="histogram of credit",
    )


def _draw_histogram_bar(low: float, wide: float, count: int, whole: int, across: Axis, up: Axis) -> Html:
    middle = low + wide / 2
    kind = "none" if abs(middle) < wide / 2 else "plus" if middle > 0 else "minus"
    left, right, top = across.place(low), across.place(low + wide), up.place(count / whole)
    hint = f"{format_signed(low, 2)} to {format_signed(low + wide, 2)}: {format_count(count, 'step')}"
    return tag(
        "g",
        tag("title", hint),
        tag("rect", x=left + 0.75, y=top, width=right - left - 1.5, height=up.start - top, class_=f"fill {kind}"),
    )


def draw_credit_strip(credits: Sequence[float], reach: float) -> Html:
    """An attempt's credit at a glance: a bar a step, upwards or downwards from the middle."""
    wide, half = 5.0 if len(credits) <= 40 else 200.0 / len(credits), 11.0
    bars = [_draw_strip_bar(credit, reach, place * wide, wide, half) for place, credit in enumerate(credits)]
    length = max(wide * len(credits), 1.0)
    return tag(
        "svg",
        tag("line", x1=0.0, x2=length, y1=half, y2=half, class_="zero"),
        bars,
        class_="strip",
        width=length,
        height=2 * half,
        viewBox=f"0 0 {length:.1f} {2 * half:.0f}",
        preserveAspectRatio="xMinYMid",
        aria_hidden="true",
    )


def _draw_strip_bar(credit: float, reach: float, left: float, wide: float, half: float) -> Html:
    tall = max(half * scale_credit(credit, reach), 0.6)  # even nothing leaves a mark
    return tag(
        "rect",
        x=f"{left:.2f}",
        y=half - tall if credit > 0 else half,
        width=f"{wide * 0.8:.2f}",
        height=tall,
        class_=f"fill {name_sign(credit)}",
    )


def draw_credit_bar(credit: float, reach: float) -> Html:
    """A step's credit: the number, and a bar to the right of the middle or to the left of it."""
    width = f"width:{50 * scale_credit(credit, reach):.1f}%"
    return join(
        tag("span", format_signed(credit), class_=f"number {name_sign(credit)}"),
        tag("span", tag("span", class_=name_sign(credit), style=width), class_="balance", aria_hidden="true"),
    )


def scale_credit(credit: float, reach: float) -> float:
    """How large a credit is against the largest shown, from 0 to 1."""
    return min(abs(credit) / reach, 1.0) if reach and math.isfinite(credit) else 0.0


def name_sign(credit: float) -> str:
    """The class of a credit: plus, minus or none."""
    return "plus" if credit > 0 else "minus" if credit < 0 else "none"
