"""A drawing of the speed-up over packed rows against how many fewer tokens are computed.

    python -m benchmarks.prefix.plot benchmarks/results/prefix_gpu.json [--out docs/images/prefix.svg]

Each point is a case; were nothing but tokens to count, all would lie on the diagonal. Filled points share every prefix,
hollow ones whole prompts only, at the token ratio that sharing every prefix would have given.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.prefix.table import case_name, cases
from groupwise.report.markup import Html, tag

WIDTH, HEIGHT = 640.0, 440.0
LEFT, RIGHT, TOP, BOTTOM = 60.0, 16.0, 16.0, 52.0
TICKS = (1, 2, 4, 8, 16)
LOW, HIGH = 0.8, 16.0
COLOURS = ("#0b6fa4", "#c2571a", "#4f7d32")
INK, PALE = "#222", "#ccc"
TEXT = {"font_family": "sans-serif", "font_size": 13.0, "fill": INK}


@dataclass(frozen=True, kw_only=True)
class Point:
    """One case under one layout."""

    shape: str
    name: str
    fewer_tokens: float
    faster: float
    is_ours: bool


def points(result: dict[str, Any]) -> list[Point]:
    """Speed-up over packed rows of each case, for ours and for shared prompts."""
    dots = []
    for shape, sections in result["shapes"].items():
        for case in cases(sections):
            packed = case["by_layout"]["packed"]["seconds"]
            for layout in ("shared", "prompts shared"):
                if layout in case["by_layout"]:
                    dots.append(
                        Point(
                            shape=shape,
                            name=case_name(case),
                            fewer_tokens=case["fewer_tokens"],
                            faster=packed / case["by_layout"][layout]["seconds"],
                            is_ours=layout == "shared",
                        )
                    )
    return dots


def across(value: float) -> float:
    """Where a ratio lies from left to right; doubling is always the same distance."""
    return LEFT + _share(value) * (WIDTH - LEFT - RIGHT)


def up(value: float) -> float:
    """Where a ratio lies from top to bottom."""
    return HEIGHT - BOTTOM - _share(value) * (HEIGHT - TOP - BOTTOM)


def _share(value: float) -> float:
    return math.log(min(max(value, LOW), HIGH) / LOW) / math.log(HIGH / LOW)


def draw(dots: list[Point]) -> Html:
    """The drawing."""
    colours = dict(zip(dict.fromkeys(point.shape for point in dots), COLOURS, strict=False))
    return tag(
        "svg",
        tag("rect", width=WIDTH, height=HEIGHT, fill="white"),
        _axes(),
        _line(1.0, "none"),
        _line(0.9, "4 4"),
        [_dot(point, colours[point.shape]) for point in dots if not point.is_ours],
        [_dot(point, colours[point.shape]) for point in dots if point.is_ours],
        _legend(colours),
        xmlns="http://www.w3.org/2000/svg",
        viewBox=f"0 0 {WIDTH:.0f} {HEIGHT:.0f}",
        role="img",
        aria_label="Speed-up over packed rows against the ratio of tokens computed",
    )


def _axes() -> list[Html]:
    pieces = []
    for tick in TICKS:
        x, y = across(tick), up(tick)
        pieces += [
            tag("line", x1=x, x2=x, y1=TOP, y2=HEIGHT - BOTTOM, stroke=PALE),
            tag("line", x1=LEFT, x2=WIDTH - RIGHT, y1=y, y2=y, stroke=PALE),
            tag("text", f"{tick}x", x=x, y=HEIGHT - BOTTOM + 18, text_anchor="middle", **TEXT),
            tag("text", f"{tick}x", x=LEFT - 8, y=y + 4, text_anchor="end", **TEXT),
        ]
    middle = (LEFT + WIDTH - RIGHT) / 2
    pieces.append(tag("text", "fewer tokens than packed rows", x=middle, y=HEIGHT - 12, text_anchor="middle", **TEXT))
    turned = f"rotate(-90 16 {HEIGHT / 2:.0f})"
    faster = tag("text", "times faster", x=16.0, y=HEIGHT / 2, text_anchor="middle", transform=turned, **TEXT)
    return [*pieces, faster]


def _line(share: float, dashes: str) -> Html:
    """Where speed is a share of the token ratio."""
    start, end = (LOW / share, LOW), (HIGH, share * HIGH)
    return tag(
        "line",
        x1=across(start[0]),
        y1=up(start[1]),
        x2=across(end[0]),
        y2=up(end[1]),
        stroke="#888",
        stroke_dasharray=dashes,
    )


def _dot(point: Point, colour: str) -> Html:
    fill = colour if point.is_ours else "white"
    said = f"{point.shape}, {point.name}: {point.faster:.2f}x with {point.fewer_tokens:.2f}x fewer tokens"
    mark = tag("circle", cx=across(point.fewer_tokens), cy=up(point.faster), r=5.0, fill=fill, stroke=colour)
    return tag("g", tag("title", said), mark)


def _legend(colours: dict[str, str]) -> list[Html]:
    entries = [(f"{shape}, every prefix shared", colour, colour) for shape, colour in colours.items()]
    entries += [(f"{shape}, whole prompts shared", colour, "white") for shape, colour in colours.items()]
    pieces = []
    for number, (words, stroke, fill) in enumerate(entries):
        y = TOP + 18 + 20 * number
        pieces += [
            tag("circle", cx=LEFT + 18, cy=y - 4, r=5.0, fill=fill, stroke=stroke),
            tag("text", words, x=LEFT + 30, y=y, **TEXT),
        ]
    caption = "lines: as many times faster as fewer tokens, and 0.9 of it"
    return [*pieces, tag("text", caption, x=LEFT + 12, y=TOP + 18 + 20 * len(entries), **TEXT)]


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("result", type=Path, help="what the GPU's part wrote")
    parser.add_argument("--out", type=Path, default=Path("docs/images/prefix.svg"))
    options = parser.parse_args(arguments)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(draw(points(json.loads(options.result.read_text()))) + "\n")
    print(options.out)


if __name__ == "__main__":
    main()
