"""Axes of a chart: round ticks, and where a value lies."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

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
