"""The axes that curves of several runs can be drawn along: updates, steps, tokens, time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from groupwise.reports.run.number_format import THIN_SPACE, format_count, format_seconds
from groupwise.reports.run.page.axes import Axis, make_update_axis, round_up_step
from groupwise.reports.runs.arm_curves import STEPS, TIME, TOKENS, UPDATES

TITLES = {UPDATES: "updates", STEPS: "environment steps", TOKENS: "sampled tokens", TIME: "time"}
"""What the axes are called, in the switch and in sentences."""
UNITS = ((3600.0, "h"), (60.0, "min"), (1.0, "s"))
POWERS = ((1e9, "G"), (1e6, "M"), (1e3, "k"), (1.0, ""))
NUM_TICKS = 4
MIN_UNITS = 3
"""A unit of time is used from so many of it on."""


@dataclass(frozen=True)
class CostAxis:
    """An axis with the words for its values."""

    axis: Axis
    """Where values lie."""
    label: Callable[[float], str]
    """A tick in words."""
    describe: Callable[[float], str]
    """A place in words, for what is shown when pointed at."""


def make_cost_axis(kind: str, high: float, start: float, end: float) -> CostAxis:
    """An axis from 0 to what the longest curve cost."""
    if kind == UPDATES:
        axis = make_update_axis((0, round(high)), start, end)
        return CostAxis(axis, lambda tick: f"{tick:,.0f}", lambda place: f"update {place:,.0f}")
    unit, name = _choose_unit(kind, high)
    step = unit * round_up_step((high or 1.0) / unit / NUM_TICKS)
    ticks = tuple(step * number for number in range(int(high / step + 1e-9) + 1))
    axis = Axis(0.0, high or 1.0, start, end, ticks)
    return CostAxis(axis, lambda tick: _format_tick(tick / unit, name), _DESCRIBE[kind])


def _choose_unit(kind: str, high: float) -> tuple[float, str]:
    if kind == TIME:
        return next(((unit, name) for unit, name in UNITS if high >= MIN_UNITS * unit), UNITS[-1])
    return next(((unit, name) for unit, name in POWERS if high >= unit), POWERS[-1])


def _format_tick(number: float, unit: str) -> str:
    return "0" if not number else f"{number:.3g}{THIN_SPACE}{unit}".rstrip(THIN_SPACE)


_DESCRIBE: dict[str, Callable[[float], str]] = {
    STEPS: lambda place: format_count(round(place), "step"),
    TOKENS: lambda place: format_count(round(place), "token"),
    TIME: format_seconds,
}
