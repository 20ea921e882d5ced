"""Errors of credit over a dial, a task set for each world, drawn by hand as SVG."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from html import escape
from typing import Any

WIDTH, HEIGHT = 880, 360
TOP, BOTTOM = 44, 290
PANEL_LEFTS, PANEL_WIDTH = (56, 486), 350
LOWEST, HIGHEST = 0.2, 1.0
"""Errors that the axis shows; smaller ones are drawn at its end."""
COLOURS = {
    "grpo": "#c8641b",
    "rloo": "#e0a06a",
    "gigpo": "#2a7f9e",
    "hgpo": "#6b3fa0",
    "salt": "#4d8f3a",
    "gagpo": "#b5306a",
    "hgae": "#222222",
    "shrunk_hgae": "#9a9a1f",
}


def draw_dial(worlds: Mapping[str, Sequence[Mapping[str, Any]]], *, dial: str, methods: Sequence[str]) -> str:
    """Error against the truth over where a dial stands, with 95 % intervals, a task set for each world."""
    body = []
    for left, (world, studies) in zip(PANEL_LEFTS, worlds.items(), strict=False):
        body += _draw_task_set(left, world, studies, dial, methods)
    body += _draw_legend(methods)
    style = "font-family: sans-serif; font-size: 12px"
    lines = "\n".join(body)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" style="{style}">\n'
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>\n{lines}\n</svg>\n'
    )


def _draw_task_set(
    left: float, world: str, studies: Sequence[Mapping[str, Any]], dial: str, methods: Sequence[str]
) -> Iterator[str]:
    yield _text(left, 22, f"{world}: error by {dial} (1 = no credit; grey: solved)", anchor="start")
    for tenth in range(round(10 * LOWEST), round(10 * HIGHEST) + 1):
        y = _height(tenth / 10)
        yield f'<line x1="{left}" x2="{left + PANEL_WIDTH}" y1="{y:.1f}" y2="{y:.1f}" stroke="#dddddd"/>'
        yield _text(left - 6, y + 4, f"{tenth / 10:.1f}", anchor="end")
    places = [left + PANEL_WIDTH * (number + 0.5) / max(len(studies), 1) for number in range(len(studies))]
    for x, study in zip(places, studies, strict=True):
        yield _text(x, BOTTOM + 18, study["setting"])
        yield _text(x, BOTTOM + 34, f"{100 * study['recording']['success']:.0f} %", colour="#888888")
    for number, method in enumerate(methods):
        shift = 4.0 * (number - (len(methods) - 1) / 2)
        points = [
            (x + shift, study["methods"][method]["error"])
            for x, study in zip(places, studies, strict=True)
            if "error" in study["methods"].get(method, {})
        ]
        yield from _draw_method(points, COLOURS[method])


def _draw_method(points: Sequence[tuple[float, Mapping[str, float]]], colour: str) -> Iterator[str]:
    path = " ".join(f"{x:.1f},{_height(error['value']):.1f}" for x, error in points)
    yield f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="1.5"/>'
    for x, error in points:
        low, high = _height(error["low"]), _height(error["high"])
        yield f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{low:.1f}" y2="{high:.1f}" stroke="{colour}" stroke-width="1.5"/>'
        yield f'<circle cx="{x:.1f}" cy="{_height(error["value"]):.1f}" r="2.5" fill="{colour}"/>'


def _draw_legend(methods: Sequence[str]) -> Iterator[str]:
    for number, method in enumerate(methods):
        yield _text(PANEL_LEFTS[0] + 100 * number, HEIGHT - 10, method, anchor="start", colour=COLOURS[method])


def _height(error: float) -> float:
    share = (min(max(error, LOWEST), HIGHEST) - LOWEST) / (HIGHEST - LOWEST)
    return BOTTOM - (BOTTOM - TOP) * share


def _text(x: float, y: float, text: str, *, anchor: str = "middle", colour: str = "#222222") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{colour}">{escape(text)}</text>'
