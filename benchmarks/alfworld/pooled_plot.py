"""Success over environment steps, pooled over seeds, a task set for each set of games, drawn by hand as SVG.

python -m benchmarks.alfworld.pooled_plot benchmarks/results/alfworld_pooled.json [--out docs/images/alfworld_seeds.svg]
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from benchmarks.alfworld.plot import choose_colour, draw_result, place_text, say_method
from benchmarks.alfworld.settings import SPLITS

WIDTH = 880
TOP, BOTTOM = 44, 326
LEGEND_TOP, LEGEND_STEP, LEGEND_WIDTH, NAMES_IN_ROW = 390, 18, 200, 4
"""Names of methods below the task sets, so many in a row."""
PANEL_LEFTS, PANEL_WIDTH = (56, 496), 360
PICTURES = {"alfworld_pooled": "alfworld_seeds", "alfworld_scratch_pooled": "alfworld_scratch"}
"""What the pictures of the two pooled results are called."""
SHIFT = 4.0
"""Between the bars of neighbouring methods at one mark, so that none hides another."""


def draw_seeds(pooled: Mapping[str, Any]) -> str:
    """One curve a method through its interquartile means, with intervals as bars; every seed a thin line.

    Variants are left to the tables: they would hide one another.
    """
    curves = {method: seeds for method, seeds in pooled["curves"].items() if method not in pooled["variants"]}
    pooled = {**pooled, "curves": curves}
    body = []
    for left, split in zip(PANEL_LEFTS, SPLITS, strict=True):
        body += _draw_task_set(left, split, pooled)
    body += _draw_legend(pooled)
    rows = -(-len(pooled["curves"]) // NAMES_IN_ROW)
    height = LEGEND_TOP + 10 + LEGEND_STEP * (rows - 1)
    style = "font-family: sans-serif; font-size: 12px"
    lines = "\n".join(body)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" style="{style}">\n'
        f'<rect width="{WIDTH}" height="{height}" fill="white"/>\n{lines}\n</svg>\n'
    )


def _draw_task_set(left: float, split: str, pooled: Mapping[str, Any]) -> Iterator[str]:
    yield place_text(left, 22, f"Success on {split} (temperature {pooled['temperature']})", anchor="start")
    for percent in range(0, 101, 20):
        y = _height(percent / 100)
        yield f'<line x1="{left}" x2="{left + PANEL_WIDTH}" y1="{y:.1f}" y2="{y:.1f}" stroke="#dddddd"/>'
        yield place_text(left - 6, y + 4, f"{percent} %", anchor="end")
    spacing = pooled["sizes"]["mark"]
    for steps in range(0, pooled["sizes"]["compare_at"] + 1, spacing):
        yield place_text(_place(left, steps, pooled), BOTTOM + 18, f"{steps // 1000}k")
    for method, seeds in pooled["curves"].items():
        for evaluations in seeds.values():
            points = [(evaluation["total_steps"], evaluation[split]) for evaluation in evaluations]
            yield _draw_line([(_place(left, x, pooled), y) for x, y in points], choose_colour(method), "0.8", "0.35")
    for number, method in enumerate(pooled["curves"]):
        yield from _draw_means(left, split, pooled, method, SHIFT * (number - (len(pooled["curves"]) - 1) / 2))


def _draw_means(left: float, split: str, pooled: Mapping[str, Any], method: str, shift: float) -> Iterator[str]:
    """A method's interquartile means, where they have intervals; with fewer seeds, the thin lines say it all."""
    cases = [(mark["steps"], mark["methods"][method][split]) for mark in pooled["marks"] if method in mark["methods"]]
    bars = [(_place(left, steps, pooled) + shift, case) for steps, case in cases if case["interval"] is not None]
    if not bars:
        return
    start = (_place(left, 0, pooled), pooled["after_imitation"][split]["value"])
    yield _draw_line([start, *((x, case["value"]) for x, case in bars)], choose_colour(method), "2.2", "1")
    for x, case in bars:
        low, high = (_height(end) for end in case["interval"])
        line = f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{low:.1f}" y2="{high:.1f}"'
        yield f'{line} stroke="{choose_colour(method)}" stroke-width="2"/>'
        yield f'<circle cx="{x:.1f}" cy="{_height(case["value"]):.1f}" r="3.5" fill="{choose_colour(method)}"/>'


def _draw_line(points: Sequence[tuple[float, float]], colour: str, width: str, opacity: str) -> str:
    path = " ".join(f"{x:.1f},{_height(y):.1f}" for x, y in points)
    shape = f'fill="none" stroke="{colour}" stroke-width="{width}" stroke-opacity="{opacity}"'
    return f'<polyline points="{path}" {shape}/>'


def _draw_legend(pooled: Mapping[str, Any]) -> Iterator[str]:
    cases = [task_sets[split] for mark in pooled["marks"] for task_sets in mark["methods"].values() for split in SPLITS]
    has_bars = any(case["interval"] is not None for case in cases)
    means = (
        "; thin: a seed; thick: interquartile mean over seeds, with 95 % interval" if has_bars else "; a line a seed"
    )
    yield place_text(WIDTH / 2, BOTTOM + 40, f"environment steps{means}")
    for number, (method, seeds) in enumerate(pooled["curves"].items()):
        row, place = divmod(number, NAMES_IN_ROW)
        name, y = f"{say_method(method)} ({len(seeds)} seeds)", LEGEND_TOP + LEGEND_STEP * row
        yield place_text(PANEL_LEFTS[0] + LEGEND_WIDTH * place, y, name, anchor="start", colour=choose_colour(method))


def _place(left: float, steps: float, pooled: Mapping[str, Any]) -> float:
    """Where a number of steps lies; a run ends up to one update past the last mark."""
    return left + (PANEL_WIDTH - 16) * steps / pooled["sizes"]["compare_at"]


def _height(share: float) -> float:
    return BOTTOM - (BOTTOM - TOP) * share


def main(arguments: Sequence[str] | None = None) -> None:
    """Draw what was pooled."""
    draw_result(draw_seeds, PICTURES, __doc__, arguments)


if __name__ == "__main__":
    main()
