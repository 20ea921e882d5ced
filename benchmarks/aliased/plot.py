"""What depth gains, by group size and by what is hidden, and theory against measurement: one picture, drawn by hand."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from html import escape
from math import ceil, floor
from typing import Any

from benchmarks.aliased.measure import DEPTHS, name_blend

WIDTH, HEIGHT = 990, 350
TOP, BOTTOM = 56, 292
TASK_SETS = ((60, 310), (380, 630), (700, 950))
"""Left and right end of each task set."""
COLOURS = {1: "#2a7f9e", 2: "#6b3fa0", 4: "#c8641b"}
DASHES = {0: "", 2: ' stroke-dasharray="5 4"'}
"""Policies that see the text alone, and those that see two past steps."""
SIZES = ("4 rollouts", "8 rollouts", "16 rollouts", "64 rollouts")
BITS = ("0 hidden bits", "1 hidden bits", "2 hidden bits", "3 hidden bits")


def draw_picture(result: Mapping[str, Any]) -> str:
    """The picture of a result, as SVG."""
    low, high = _find_range(result["pooled"])
    body = [
        *_draw_gains(result["pooled"], SIZES, TASK_SETS[0], (low, high), "Gain of depth, by group size"),
        *_draw_gains(result["pooled"], BITS, TASK_SETS[1], (low, high), "and by hidden bits, 8 rollouts"),
        *_draw_theory(result["settings"], TASK_SETS[2]),
        *_draw_legend(),
    ]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
        f'style="font-family: sans-serif; font-size: 12px">\n<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>\n'
        + "\n".join(body)
        + "\n</svg>\n"
    )


def _read_gain(pooled: Mapping[str, Any], window: int, part: str, depth: int) -> Sequence[float]:
    gain: Sequence[float] = pooled[f"window {window}, {part}"]["gain"][f"{name_blend(depth)} over {name_blend(0)}"]
    return gain


def _find_range(pooled: Mapping[str, Any]) -> tuple[float, float]:
    """The lowest and the highest end of an interval that is drawn, and 0."""
    ends = [
        end
        for window in DASHES
        for part in (*SIZES, *BITS)
        for depth in DEPTHS[1:]
        for end in _read_gain(pooled, window, part, depth)
    ]
    return min(0.0, *ends), max(0.0, *ends)


def _draw_gains(
    pooled: Mapping[str, Any], parts: Sequence[str], task_set: tuple[int, int], ends: tuple[float, float], title: str
) -> Iterator[str]:
    """Gain in cosine over depth 0 with 95 % intervals, a line for each depth and kind of policy."""
    left, right = task_set
    low, high = ends

    def height(gain: float) -> float:
        return BOTTOM - (BOTTOM - TOP) * (gain - low) / (high - low)

    yield _write(left, TOP - 12, title, anchor="start")
    for hundredth in range(ceil(100 * low), floor(100 * high) + 1):
        y = height(hundredth / 100)
        yield f'<line x1="{left}" x2="{right}" y1="{y:.1f}" y2="{y:.1f}" stroke="#e4e4e4"/>'
        yield _write(left - 6, y + 4, f"{hundredth / 100:+.2f}" if hundredth else "0", anchor="end")
    yield f'<line x1="{left}" x2="{right}" y1="{height(0):.1f}" y2="{height(0):.1f}" stroke="#888888"/>'
    places = [left + 22 + (right - left - 44) * number / (len(parts) - 1) for number in range(len(parts))]
    for place, part in zip(places, parts, strict=True):
        yield _write(place, BOTTOM + 18, part.split()[0])
    yield _write((left + right) / 2, BOTTOM + 36, " ".join(parts[0].split()[1:]))
    for order, (window, depth) in enumerate((window, depth) for window in DASHES for depth in DEPTHS[1:]):
        gains = [_read_gain(pooled, window, part, depth) for part in parts]
        shifted = [place + 3 * (order - 2.5) for place in places]
        points = " ".join(f"{x:.1f},{height(gain[0]):.1f}" for x, gain in zip(shifted, gains, strict=True))
        yield f'<polyline points="{points}" fill="none" stroke="{COLOURS[depth]}" stroke-width="1.6"{DASHES[window]}/>'
        for x, (_, lower, upper) in zip(shifted, gains, strict=True):
            yield (
                f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{height(lower):.1f}" y2="{height(upper):.1f}" '
                f'stroke="{COLOURS[depth]}"/>'
            )


def _draw_theory(settings: Sequence[Mapping[str, Any]], task_set: tuple[int, int]) -> Iterator[str]:
    """The mean squared error of single levels: foreseen to the right, measured upwards."""
    left, right = task_set
    dots = [
        (name, level["error"], setting["credit"][name]["error"])
        for setting in settings
        for name, level in setting["foreseen"].items()
    ]
    end = float(ceil(max(max(foreseen, measured) for _, foreseen, measured in dots)))
    yield _write(left, TOP - 12, "Error of single levels, as a share of A²", anchor="start")
    yield f'<line x1="{left}" x2="{right}" y1="{BOTTOM}" y2="{TOP}" stroke="#888888"/>'
    for number in range(5):
        share = number / 4
        yield _write(left - 6, BOTTOM - (BOTTOM - TOP) * share + 4, f"{end * share:.1f}", anchor="end")
        yield _write(left + (right - left) * share, BOTTOM + 18, f"{end * share:.1f}")
    yield _write((left + right) / 2, BOTTOM + 36, "foreseen (measured upwards)")
    for name, foreseen, measured in dots:
        colour = next((COLOURS[depth] for depth in COLOURS if name == f"level {depth}"), "#444444")
        x, y = left + (right - left) * foreseen / end, BOTTOM - (BOTTOM - TOP) * measured / end
        yield f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2.2" fill="{colour}" fill-opacity="0.7"/>'


def _draw_legend() -> Iterator[str]:
    words = [("#444444", "", "level 0")]
    words += [(COLOURS[depth], "", f"depth or level {depth}") for depth in COLOURS]
    words += [("#222222", DASHES[0], "policy sees the text alone"), ("#222222", DASHES[2], "two past steps too")]
    x = 60.0
    for colour, dashes, text in words:
        yield f'<line x1="{x}" x2="{x + 24}" y1="20" y2="20" stroke="{colour}" stroke-width="2"{dashes}/>'
        yield _write(x + 30, 24, text, anchor="start")
        x += 46 + 6.1 * len(text)


def _write(x: float, y: float, text: str, *, anchor: str = "middle") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="#222222">{escape(text)}</text>'
