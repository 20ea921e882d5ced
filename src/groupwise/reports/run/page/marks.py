"""Small drawings: intervals, bars, shares of a whole, a histogram, the strip of an attempt's credit."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from groupwise.evaluation.verdict import PanelScore
from groupwise.reports.run.number_format import (
    format_compact,
    format_count,
    format_percent,
    format_seconds,
    format_signed,
)
from groupwise.reports.run.page.axes import Axis, make_value_axis
from groupwise.reports.run.page.curves import BOTTOM, HEIGHT, LEFT, RIGHT, TOP, WIDTH
from groupwise.reports.run.page.markup import Html, join, tag

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
