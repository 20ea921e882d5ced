"""Number formats: percentages, signed numbers, times in a suitable unit."""

from __future__ import annotations

import math
from typing import TypeGuard

THIN_SPACE = "\N{NARROW NO-BREAK SPACE}"
MINUS = "\N{MINUS SIGN}"
TIMES = "\N{MULTIPLICATION SIGN}"
INTERVAL_LEVEL = f"95{THIN_SPACE}%"
"""The level of the intervals."""
NO_NUMBER = "\N{EN DASH}"
"""Printed in place of a missing number."""


def format_percent(share: float | None, decimals: int = 1) -> str:
    """A fraction in percent.

    >>> format_percent(0.385)
    '38.5\\u202f%'
    """
    return NO_NUMBER if not _is_finite(share) else f"{format_number(100 * share, decimals)}{THIN_SPACE}%"


def format_score(value: float | None, is_share: bool) -> str:
    return format_percent(value) if is_share else format_compact(value)


def format_bounds(bounds: tuple[float, float], is_share: bool) -> str:
    """The bounds of an interval; without a percent sign."""
    return " to ".join(format_number(100 * bound, 1) if is_share else format_compact(bound) for bound in bounds)


def format_interval(value: float, bounds: tuple[float, float], is_share: bool) -> str:
    """A score with its interval.

    >>> format_interval(0.5, (0.25, 0.75), True)
    '50.0\\u202f% [25.0, 75.0]'
    """
    return f"{format_score(value, is_share)} [{format_bounds(bounds, is_share).replace(' to ', ', ')}]"


def shorten_hash(whole: str) -> str:
    return whole[:12]


def format_points(change: float) -> str:
    return f"{format_signed(100 * change, 1)}{THIN_SPACE}points"


def format_number(value: float | None, decimals: int) -> str:
    """A number with fixed decimals, without a minus before zero."""
    if not _is_finite(value):
        return NO_NUMBER
    text = f"{abs(value):,.{decimals}f}"
    return f"{MINUS}{text}" if value < 0 and text.strip("0.,") else text


def format_signed(value: float | None, decimals: int = 3) -> str:
    if not _is_finite(value):
        return NO_NUMBER
    text = format_number(value, decimals)
    return f"+{text}" if value > 0 and text.strip("0.,") else text


def format_compact(value: float | None) -> str:
    """A number of any size in a few characters.

    >>> format_compact(0.0312345), format_compact(12345.6), format_compact(1.0)
    ('0.0312', '12,346', '1')
    """
    if not _is_finite(value):
        return NO_NUMBER
    if value == 0:
        return "0"
    size = abs(value)
    if size >= 1e7 or size < 1e-4:
        mantissa, _, exponent = f"{size:.2e}".partition("e")
        text = f"{mantissa.rstrip('0').rstrip('.')}e{str(int(exponent)).replace('-', MINUS)}"
    else:
        text = f"{size:,.0f}" if size >= 999.5 else f"{size:.3g}"
    return f"{MINUS}{text}" if value < 0 else text


def format_seconds(value: float | None) -> str:
    """A time in a suitable unit.

    >>> format_seconds(0.25), format_seconds(75), format_seconds(7300)
    ('0.25\\u202fs', '1\\u202fmin 15\\u202fs', '2\\u202fh 1\\u202fmin')
    """
    if not _is_finite(value):
        return NO_NUMBER
    if value < 60:
        return f"{value:.3g}{THIN_SPACE}s" if value < 10 else f"{value:.0f}{THIN_SPACE}s"
    minutes, rest = divmod(round(value), 60)
    if minutes < 60:
        return f"{minutes}{THIN_SPACE}min {rest}{THIN_SPACE}s"
    return f"{minutes // 60}{THIN_SPACE}h {minutes % 60}{THIN_SPACE}min"


def format_count(count: int, word: str) -> str:
    """A count with its noun.

    >>> format_count(1, "task"), format_count(2000, "task")
    ('1 task', '2,000 tasks')
    """
    return f"{count:,} {word}{'' if count == 1 else 's'}"


def _is_finite(value: float | None) -> TypeGuard[float]:
    return value is not None and math.isfinite(value)
