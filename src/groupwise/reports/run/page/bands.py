"""Shares of a whole over updates as SVG: bands on top of one another."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from groupwise.reports.run.number_format import format_percent
from groupwise.reports.run.page.axes import Axis, make_update_axis, make_value_axis
from groupwise.reports.run.page.curves import BOTTOM, HEIGHT, LEFT, MAX_HINTS, RIGHT, TOP, WIDTH, draw_axes, pick_evenly
from groupwise.reports.run.page.markup import Html, tag


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
        _draw_hints(shares, numbers, across),
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


def _draw_hints(shares: Mapping[str, Mapping[int, float]], numbers: Sequence[int], across: Axis) -> Html:
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
