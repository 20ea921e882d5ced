"""SVG drawings: curves and bands over updates, histograms, intervals, and bars of advantages."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from groupwise.report.markup import Content, Html, join, tag
from groupwise.report.number_format import (
    NO_NUMBER,
    format_compact,
    format_count,
    format_interval,
    format_number,
    format_percent,
    format_score,
    format_seconds,
    format_signed,
)
from groupwise.training.evaluation.summary import TaskSetScore

WIDTH, HEIGHT = 340.0, 172.0
LEFT, RIGHT, TOP, BOTTOM = 44.0, 8.0, 10.0, 24.0
MAX_DOTS = 30
"""With more points, they have no dots."""
MAX_PLAIN = 60
"""With more points, a running mean is drawn over the line."""
MAX_HINTS = 60
"""Number of points of a curve with a tooltip."""

Point = tuple[int, float]


# Axes and the frame of a chart: round ticks, and where a value lies.

STEPS = (1, 2, 5, 10)
MIN_SHARES = 0.1
"""The shortest axis of fractions."""


@dataclass(frozen=True)
class Axis:
    """Maps values to pixels: `low` to `start`, `high` to `end`."""

    low: float
    high: float
    start: float
    end: float
    ticks: tuple[float, ...]
    label: Callable[[float], str] = "{:,.0f}".format

    def place(self, value: float) -> float:
        return self.start + (value - self.low) / (self.high - self.low) * (self.end - self.start)


def make_value_axis(values: Sequence[float], start: float, end: float, *, share: bool = False) -> Axis:
    """An axis over all values, between round numbers.

    Fractions (`share`) have an axis of at least 10 points, so noise does not look like a change. If they cover more
    than half of all, it is 0 to 1.
    """
    low, high = (min(values), max(values)) if values else (0.0, 1.0)
    is_fraction = share and 0 <= low <= high <= 1
    if 0 < low < 0.5 * high:
        low = 0.0  # not far from zero: show it
    if high < 0 and high > 0.5 * low:
        high = 0.0
    if is_fraction and high - low > 0.5:
        low, high, step = 0.0, 1.0, 0.25
    else:
        if is_fraction and high - low < MIN_SHARES:
            low = min(max((low + high - MIN_SHARES) / 2, 0.0), 1 - MIN_SHARES)
            high = low + MIN_SHARES
        elif high - low <= 1e-12 * max(abs(low), abs(high)):
            room = abs(high) / 2 or 1.0
            low, high = (0.0, 1.25 * high) if high > 0 else (low - room, high + room)
        step = round_up_step((high - low) / 4)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    ticks = tuple(number * step for number in range(first, last + 1))
    are_close = len({format_compact(tick) for tick in ticks}) < len(ticks)
    decimals = max(0, -math.floor(math.log10(step)))

    def label(tick: float) -> str:
        # Sums of a step leave a last digit of rounding: 0.30000000000000004.
        value = 0.0 if abs(tick) < 1e-9 * (ticks[-1] - ticks[0]) else tick
        if share:
            return format_percent(value, 0)
        return format_number(value, decimals) if are_close else format_compact(value)

    return Axis(ticks[0], ticks[-1], start, end, ticks, label)


def make_update_axis(numbers: Sequence[int], start: float, end: float) -> Axis:
    low, high = (min(numbers), max(numbers)) if numbers else (0, 1)
    if low == high:
        return Axis(low - 1, high + 1, start, end, (float(low),))
    step = max(1, math.ceil(round_up_step((high - low) / 5)))
    ticks = tuple(float(number) for number in range(-(-low // step) * step, high + 1, step))
    return Axis(low, high, start, end, ticks)


def round_up_step(min_step: float) -> float:
    """The smallest of 1, 2 or 5 times a power of ten that is not below `min_step`.

    >>> round_up_step(0.03), round_up_step(17), round_up_step(200)
    (0.05, 20.0, 200.0)
    """
    power = 10.0 ** math.floor(math.log10(min_step))
    return next(step * power for step in STEPS if step * power >= min_step * (1 - 1e-9))


def draw_chart(
    across: Axis,
    up: Axis,
    *content: Content,
    label: str,
    below: Content = None,
    kind: str = "chart",
    size: tuple[float, float] = (WIDTH, HEIGHT),
) -> Html:
    """A chart: `below` is drawn under the axes, `content` over them."""
    frame = []
    for tick in up.ticks:
        y = up.place(tick)
        line = tag("line", x1=across.start - 4, x2=across.end + 4, y1=y, y2=y, class_="zero" if tick == 0 else "grid")
        frame += [line, tag("text", up.label(tick), x=across.start - 11, y=y + 3.5, text_anchor="end")]
    for tick in across.ticks:
        x = across.place(tick)
        frame.append(tag("text", across.label(tick), x=x, y=up.start + 17, text_anchor="middle"))
    return tag(
        "svg",
        below,
        tag("g", frame, class_="frame"),
        *content,
        class_=kind,
        viewBox=f"0 0 {size[0]:.0f} {size[1]:.0f}",
        role="img",
        aria_label=label,
    )


def draw_card(title: str, last: str, drawing: Html, *meanings: str, kind: str = "card") -> Html:
    caption = tag("figcaption", tag("h3", title), tag("span", last, class_="last") if last else None)
    return tag("figure", caption, drawing, [tag("p", words, class_="meaning") for words in meanings], class_=kind)


def draw_band(
    across: Axis, up: Axis, lower: Sequence[tuple[float, float]], upper: Sequence[tuple[float, float]], kind: str
) -> Html:
    places = " L".join(f"{across.place(x):.1f},{up.place(y):.1f}" for x, y in [*upper, *reversed(lower)])
    return tag("path", d=f"M{places}Z" if places else "", class_=kind)


def draw_line(across: Axis, up: Axis, points: Sequence[tuple[float, float]], *, class_: str | None = None) -> Html:
    return tag(
        "polyline", points=" ".join(f"{across.place(x):.1f},{up.place(y):.1f}" for x, y in points), class_=class_
    )


def _draw_hints(across: Axis, hints: Sequence[tuple[float, str, Html | None]]) -> Html:
    """Invisible columns with tooltips."""
    width = (across.end - across.start) / max(len(hints), 1)
    columns = []
    for x, words, mark in hints:
        column = tag("rect", x=x - width / 2, y=TOP, width=width, height=HEIGHT - TOP - BOTTOM)
        columns.append(tag("g", tag("title", words), column, mark))
    return tag("g", columns, class_="hints")


# A curve: a number over updates.


@dataclass(frozen=True, kw_only=True)
class Curve:
    """A number over updates."""

    title: str
    meaning: str
    points: Sequence[Point]
    """Its value by update, in order. The line breaks at missing updates."""
    span: tuple[int, int]
    is_share: bool = False
    scores: Sequence[TaskSetScore] = ()
    """Evaluations, shown as dots with their intervals."""


def draw_curve_card(curve: Curve) -> Html:
    last = format_score(curve.points[-1][1], curve.is_share) if curve.points else NO_NUMBER
    window = choose_window(len(curve.points))
    meaning = curve.meaning + (f" Dark line: mean of {window} updates." if window else "")
    return draw_card(curve.title, last, draw_curve(curve), meaning)


def draw_curve(curve: Curve) -> Html:
    points, window = curve.points, choose_window(len(curve.points))
    across = make_update_axis(curve.span, LEFT + 4, WIDTH - RIGHT - 4)
    bounds = [bound for score in curve.scores for bound in score.interval]
    up = make_value_axis([value for _, value in points] + bounds, HEIGHT - BOTTOM, TOP, share=curve.is_share)

    stretches = list(split_at_gaps(points))
    lines = [draw_line(across, up, stretch, class_="raw" if window else "line") for stretch in stretches]
    dots: Sequence[Point] = []
    if window:
        lines += [draw_line(across, up, smooth_points(stretch, window), class_="line") for stretch in stretches]
    else:
        dots = points if len(points) <= MAX_DOTS else [stretch[0] for stretch in stretches if len(stretch) == 1]
    lines += [tag("circle", cx=across.place(x), cy=up.place(y), r="2.2", class_="dot") for x, y in dots]
    scores = {}
    for score in curve.scores:  # a dot, and a whisker as long as its interval
        x, (low, high) = across.place(score.number), map(up.place, score.interval)
        whisker = tag("line", x1=x, x2=x, y1=low, y2=high)
        scores[score.number] = score
        lines.append(tag("g", whisker, tag("circle", cx=x, cy=up.place(score.value), r="3.6"), class_="score"))
    hints = []
    for number, value in pick_evenly(points, MAX_HINTS):
        words = f"update {number}: {format_score(value, curve.is_share)}"
        if number in scores:
            score = scores[number]
            words += f"; evaluation {format_interval(score.value, score.interval, curve.is_share)}"
        x = across.place(number)
        hints.append((x, words, tag("circle", cx=x, cy=up.place(value), r="3.5")))
    ends = [
        f"{format_score(value, curve.is_share)} at update {number}" for number, value in [*points[:1], *points[-1:]]
    ]
    label = f"{curve.title}: {', '.join(ends) or 'no number yet'}"
    return draw_chart(across, up, lines, _draw_hints(across, hints), label=label)


def choose_window(num_points: int) -> int:
    """The number of updates of the running mean; 0 = none is needed."""
    return 0 if num_points <= MAX_PLAIN else max(5, num_points // 25 | 1)


def smooth_points(points: Sequence[Point], window: int) -> list[Point]:
    """Running mean; its window is smaller at the ends."""
    half = window // 2
    means = []
    for place, (number, _) in enumerate(points):
        reach = min(half, place, len(points) - 1 - place)
        near = [value for _, value in points[place - reach : place + reach + 1]]
        means.append((number, sum(near) / len(near)))
    return means


def split_at_gaps(points: Sequence[Point]) -> Iterator[Sequence[Point]]:
    """Split a curve at missing updates, given the smallest distance of its points."""
    gaps = [after - before for (before, _), (after, _) in pairwise(points)]
    first = 0
    for place, gap in enumerate(gaps, start=1):
        if gap > min(gaps):
            yield points[first:place]
            first = place
    if points:
        yield points[first:]


def pick_evenly(points: Sequence[Point], max_points: int) -> Sequence[Point]:
    """At most `max_points` points at equal distances, with the first and the last."""
    if len(points) <= max_points:
        return points
    return [points[round(place * (len(points) - 1) / (max_points - 1))] for place in range(max_points)]


# Fractions of a whole over updates, as stacked bands.


def draw_bands_card(title: str, meaning: str, shares: Mapping[str, Mapping[int, float]], span: tuple[int, int]) -> Html:
    """Fractions by name and update as stacked bands with a legend. Updates with a missing fraction are left out."""
    numbers = sorted(set.intersection(*(set(curve) for curve in shares.values())))
    across = make_update_axis(span, LEFT + 4, WIDTH - RIGHT - 4)
    up = make_value_axis([0.0, 1.0], HEIGHT - BOTTOM, TOP, share=True)
    floor = dict.fromkeys(numbers, 0.0)
    bands = []
    for place, curve in enumerate(shares.values()):
        top, kind = {number: floor[number] + curve[number] for number in numbers}, f"band band{place}"
        if len(numbers) == 1:  # one update has no width
            x, low, high = across.place(numbers[0]), up.place(floor[numbers[0]]), up.place(top[numbers[0]])
            bands.append(tag("rect", x=x - 6, y=high, width=12.0, height=low - high, class_=kind))
        else:
            bands.append(draw_band(across, up, list(floor.items()), list(top.items()), kind))
        floor = top

    def describe(number: int) -> str:
        return ", ".join(f"{name} {format_percent(curve[number])}" for name, curve in shares.items())

    chosen = pick_evenly([(number, 0.0) for number in numbers], MAX_HINTS)
    hints = _draw_hints(
        across, [(across.place(number), f"update {number}: {describe(number)}", None) for number, _ in chosen]
    )
    label = f"{title}: {describe(numbers[-1])} at update {numbers[-1]}" if numbers else title
    legend = [
        tag("span", tag("i", class_=f"swatch band{place}"), name, class_="entry") for place, name in enumerate(shares)
    ]
    last = format_percent(1 - list(shares.values())[-1][numbers[-1]]) if numbers else ""
    drawing = draw_chart(across, up, hints, below=bands, label=label, kind="chart bands")
    return draw_card(title, last, join(drawing, tag("p", legend, class_="legend")), meaning)


# Small drawings: intervals, parts of a whole, a histogram, the advantages of steps.

NUM_BARS = 31
"""Bars of a histogram; an odd number, so one bar is centred at zero."""
SHADES = 6
"""Shades of the accent colour."""


def draw_intervals(scores: Sequence[tuple[str, TaskSetScore]], *, is_share: bool) -> Html:
    width, row, foot = 400.0, 34.0, 22.0
    bounds = [bound for _, score in scores for bound in score.interval]
    across = make_value_axis(bounds, 12.0, width - 20.0, share=is_share)
    height = row * len(scores) + foot
    pieces = []
    for tick in across.ticks:
        x = across.place(tick)
        pieces.append(tag("line", x1=x, x2=x, y1=4.0, y2=height - foot, class_="grid"))
        pieces.append(tag("text", across.label(tick), x=x, y=height - 5, text_anchor="middle"))
    for place, (kind, score) in enumerate(scores):
        y = row * (place + 0.5) + 3
        low, high = (across.place(bound) for bound in score.interval)
        line, dot = tag("line", x1=low, x2=high, y1=y, y2=y), tag("circle", cx=across.place(score.value), cy=y, r="6")
        pieces.append(tag("g", line, dot, class_=f"interval {kind}"))
    return tag("svg", pieces, class_="chart", viewBox=f"0 0 {width:.0f} {height:.0f}", aria_hidden="true")


def draw_stacked_bar(parts: Mapping[str, float]) -> Html:
    whole = sum(parts.values()) or 1.0
    pieces = []
    for place, (name, amount) in enumerate(parts.items()):
        share = amount / whole
        grow, words = f"flex-grow:{max(share, 0.002):.4f}", f"{name}: {format_seconds(amount)}, {format_percent(share)}"
        inside = tag("b", name, class_="inside") if share > 0.12 else None
        pieces.append(tag("span", inside, class_=f"shade{min(place, SHADES - 1)}", style=grow, title=words))
    return tag("div", pieces, class_="stacked", role="img", aria_label="time per stage")


def draw_histogram(values: Sequence[float]) -> Html:
    known = [value for value in values if math.isfinite(value)]
    reach = max(map(abs, known), default=0.0) or 1.0
    wide = 2 * reach / NUM_BARS
    counts = [0] * NUM_BARS
    for value in known:
        counts[min(max(math.floor((value + reach) / wide), 0), NUM_BARS - 1)] += 1
    up = make_value_axis([0.0, max(counts) / max(len(values), 1)], HEIGHT - BOTTOM, TOP)
    up = Axis(up.low, up.high, up.start, up.end, up.ticks, lambda tick: format_percent(tick, 0))
    across = Axis(-reach, reach, LEFT + 4, WIDTH - RIGHT - 4, ())
    pieces = []
    for tick, anchor in ((-reach, "start"), (0.0, "middle"), (reach, "end")):
        words = format_signed(tick, 2) if tick else "0"
        pieces.append(tag("text", words, x=across.place(tick), y=HEIGHT - BOTTOM + 17, text_anchor=anchor))
    for place, count in enumerate(counts):
        low = -reach + place * wide
        middle, left, top = low + wide / 2, across.place(low), up.place(count / max(len(values), 1))
        kind = "none" if abs(middle) < wide / 2 else name_sign(middle)
        hint = f"{format_signed(low, 2)} to {format_signed(low + wide, 2)}: {format_count(count, 'step')}"
        width, height = across.place(low + wide) - left - 1.5, up.start - top
        bar = tag("rect", x=left + 0.75, y=top, width=width, height=height, class_=f"fill {kind}")
        pieces += [tag("g", tag("title", hint), bar)] if count else []
    return draw_chart(across, up, pieces, label="histogram of advantages")


def draw_credit_strip(credits: Sequence[float], reach: float) -> Html:
    """The advantages of a rollout: one bar per step, upwards or downwards."""
    wide, half = 5.0 if len(credits) <= 40 else 200.0 / len(credits), 11.0
    length = max(wide * len(credits), 1.0)
    bars = [tag("line", x1=0.0, x2=length, y1=half, y2=half, class_="zero")]
    for place, credit in enumerate(credits):
        tall = max(half * scale_credit(credit, reach), 0.6)  # even nothing leaves a mark
        left, width, y = f"{place * wide:.2f}", f"{wide * 0.8:.2f}", half - tall if credit > 0 else half
        bars.append(tag("rect", x=left, y=y, width=width, height=tall, class_=f"fill {name_sign(credit)}"))
    return tag(
        "svg",
        bars,
        class_="strip",
        width=length,
        height=2 * half,
        viewBox=f"0 0 {length:.1f} {2 * half:.0f}",
        preserveAspectRatio="xMinYMid",
        aria_hidden="true",
    )


def draw_credit_bar(credit: float, reach: float) -> Html:
    """The advantage of a step: the number, and a bar to the right or to the left."""
    width = f"width:{50 * scale_credit(credit, reach):.1f}%"
    return join(
        tag("span", format_signed(credit), class_=f"number {name_sign(credit)}"),
        tag("span", tag("span", class_=name_sign(credit), style=width), class_="balance", aria_hidden="true"),
    )


def scale_credit(credit: float, reach: float) -> float:
    """The absolute advantage relative to `reach`, from 0 to 1."""
    return min(abs(credit) / reach, 1.0) if reach and math.isfinite(credit) else 0.0


def name_sign(credit: float) -> str:
    """The CSS class of an advantage."""
    return "plus" if credit > 0 else "minus" if credit < 0 else "none"
