"""The curves and the last measurements as one picture, drawn by hand.

python -m benchmarks.alfworld.plot benchmarks/results/alfworld.json [--out docs/images/alfworld.svg]
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from benchmarks.alfworld.settings import SPLITS

WIDTH, HEIGHT = 880, 380
TOP, BOTTOM, LEFT = 46, 330, 56
CURVES_END, TASK_SETS_START = 500, 570
PANEL_WIDTH, LEGEND_WIDTH = 146, 62
COLOURS = {
    "base": "#8a8a8a",
    "warm_start": "#4d4d4d",
    "grpo": "#c8641b",
    "gigpo": "#2a7f9e",
    "hgpo": "#6b3fa0",
    "gagpo": "#b5306a",
    "hgae": "#222222",
    "shrunk_hgae": "#4d8f3a",
    "gigpo_situation": "#1b4f9c",
    "hgpo_situation": "#c2a5e0",
    "hgpo_depth_1": "#a8782c",
    "hgpo_depth_4": "#8b1e3f",
    "gigpo_released": "#7fb8c9",
    "hgpo_released": "#9a6fb8",
    "grpo_reference": "#e39a5f",
    "gigpo_reference": "#4fa3bd",
    "hgpo_reference": "#8657bd",
    "hgpo_reference_depth_4": "#b0506c",
    "gigpo_unnumbered": "#155a70",
    "hgpo_unnumbered": "#46247a",
    "hgpo_unnumbered_depth_4": "#5e1029",
    "shrunk_hgae_lam": "#1f6b5e",
    "shrunk_hgae_step_ratio": "#9cc98f",
}
OTHER_COLOUR = "#777777"
"""Of methods that are measured here for the first time."""
DASHES = {"hgpo": "7 5"}
"""Curves may lie on one another: this one lets the others through."""
NAMES = Path(__file__).parent / "method_names.json"
"""What methods are called, on pictures and in the tables of docs/."""
SPOKEN: Mapping[str, str] = {
    "base": "untrained",
    "warm_start": "imitation",
    **json.loads(NAMES.read_text(encoding="utf-8")),
}
SMOOTH = 5
"""Updates whose mean a point of a curve is: single ones have other tasks each."""


def picture(summary: Mapping[str, Any]) -> str:
    """Training success over environment steps, and success on both task sets with intervals, as SVG."""
    style = "font-family: sans-serif; font-size: 12px"
    body = "\n".join([*_curves(summary["methods"]), *_task_sets(summary["success"])])
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" style="{style}">\n'
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>\n{body}\n</svg>\n'
    )


def say_method(method: str) -> str:
    """What a method is called; a method that has no name here is called as in run files."""
    return SPOKEN.get(method, method)


def choose_colour(method: str) -> str:
    """The colour of a method's curves and words."""
    return COLOURS.get(method, OTHER_COLOUR)


def _height(share: float) -> float:
    return BOTTOM - (BOTTOM - TOP) * share


def _axis(left: float, right: float) -> Iterator[str]:
    for percent in range(0, 101, 20):
        y = _height(percent / 100)
        yield f'<line x1="{left}" x2="{right}" y1="{y:.1f}" y2="{y:.1f}" stroke="#dddddd"/>'
        yield place_text(left - 6, y + 4, f"{percent} %", anchor="end")


def place_text(x: float, y: float, text: str, *, anchor: str = "middle", colour: str = "#222222") -> str:
    """Words at a point of a picture."""
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{colour}">{escape(text)}</text>'


def _curves(methods: Mapping[str, Any]) -> Iterator[str]:
    yield place_text(LEFT, 20, f"Success while training (temperature 1, mean of {SMOOTH} updates)", anchor="start")
    yield from _axis(LEFT, CURVES_END)
    end = max((one["made"]["total_steps"] for one in methods.values()), default=1)
    for quarter in range(5):
        x = LEFT + (CURVES_END - LEFT) * quarter / 4
        yield place_text(x, BOTTOM + 18, f"{end * quarter / 4000:.0f}k")
    yield place_text((LEFT + CURVES_END) / 2, BOTTOM + 38, "environment steps")
    for number, (name, one) in enumerate(methods.items()):
        points = _smooth([(point["total_steps"], point["success"]) for point in one["curve"]])
        path = " ".join(f"{LEFT + (CURVES_END - LEFT) * x / end:.1f},{_height(y):.1f}" for x, y in points)
        dashes = f' stroke-dasharray="{DASHES[name]}"' if name in DASHES else ""
        yield f'<polyline points="{path}" fill="none" stroke="{choose_colour(name)}" stroke-width="2"{dashes}/>'
        yield place_text(
            LEFT + 14, TOP + 14 + 16 * number, say_method(name), anchor="start", colour=choose_colour(name)
        )


def _smooth(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Means over the last few points; the first ones over as many as there are."""
    return [
        (x, statistics.fmean(y for _, y in points[max(number - SMOOTH + 1, 0) : number + 1]))
        for number, (x, _) in enumerate(points)
    ]


def _task_sets(success: Mapping[str, Any]) -> Iterator[str]:
    """Both task sets over one axis, a dot for each measurement, in the order of the legend."""
    yield place_text(TASK_SETS_START, 20, "Success on held-out games (temperature 0.4)", anchor="start")
    yield from _axis(TASK_SETS_START, WIDTH - 16)
    for place, name in enumerate(success):
        yield place_text(
            TASK_SETS_START + LEGEND_WIDTH * place, 37, say_method(name), anchor="start", colour=choose_colour(name)
        )
    for number, split in enumerate(SPLITS):
        left = TASK_SETS_START + number * PANEL_WIDTH
        yield place_text(left + PANEL_WIDTH / 2, BOTTOM + 18, split)
        for place, (name, task_sets) in enumerate(success.items()):
            if split in task_sets:
                x = left + PANEL_WIDTH * (place + 1) / (len(success) + 1)
                yield from _dot(x, task_sets[split], name)


def _dot(x: float, task_set: Mapping[str, Any], name: str) -> Iterator[str]:
    low, high = (_height(bound) for bound in task_set["interval"])
    colour = choose_colour(name)
    yield f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{low:.1f}" y2="{high:.1f}" stroke="{colour}" stroke-width="2"/>'
    yield f'<circle cx="{x:.1f}" cy="{_height(task_set["success"]):.1f}" r="4.5" fill="{colour}"/>'


def draw_result(
    draw: Callable[[Mapping[str, Any]], str],
    pictures: Mapping[str, str],
    description: str | None,
    arguments: Sequence[str] | None,
) -> None:
    """Draw the result that a command line names, into a file that it may name.

    Args:
        draw: makes a picture of a result.
        pictures: the picture of a result in the docs, by the result's name; of others it is named as they are.
        description: what the command says of itself.
        arguments: the command line; None = that of the process.
    """
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("result", type=Path, help="what the benchmark wrote")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args(arguments)
    name = options.result.stem
    out = options.out or Path("docs", "images", f"{pictures.get(name, name)}.svg")
    out.write_text(draw(json.loads(options.result.read_text(encoding="utf-8"))), encoding="utf-8")


def main(arguments: Sequence[str] | None = None) -> None:
    """Draw what a record holds."""
    draw_result(picture, {}, __doc__, arguments)


if __name__ == "__main__":
    main()
