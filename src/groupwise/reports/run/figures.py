"""Numbers as people read them: shares in per cent, signs that show, times in the unit that fits."""

from __future__ import annotations

import math
from typing import TypeGuard

THIN = "\N{NARROW NO-BREAK SPACE}"
MINUS = "\N{MINUS SIGN}"
TIMES = "\N{MULTIPLICATION SIGN}"
SURE = f"95{THIN}%"
"""How sure the intervals are."""
NONE = "\N{EN DASH}"
"""What stands where there is no number."""


def percent(share: float | None, decimals: int = 1) -> str:
    """A share in per cent.

    >>> percent(0.385)
    '38.5\\u202f%'
    """
    return NONE if not _is_finite(share) else f"{number(100 * share, decimals)}{THIN}%"


def digest(whole: str) -> str:
    """A hash, as much of it as tells panels apart.

    >>> digest("0123456789abcdef")
    '0123456789ab'
    """
    return whole[:12]


def points(change: float) -> str:
    """A difference of two shares, in percentage points."""
    return f"{signed(100 * change, 1)}{THIN}points"


def number(value: float | None, decimals: int) -> str:
    """A number with so many decimals; no minus before a zero."""
    if not _is_finite(value):
        return NONE
    text = f"{abs(value):,.{decimals}f}"
    return f"{MINUS}{text}" if value < 0 and text.strip("0.,") else text


def signed(value: float | None, decimals: int = 3) -> str:
    """A number with its sign."""
    if not _is_finite(value):
        return NONE
    text = number(value, decimals)
    return f"+{text}" if value > 0 and text.strip("0.,") else text


def compact(value: float | None) -> str:
    """A number of any size in a few characters.

    >>> compact(0.0312345), compact(12345.6), compact(1.0)
    ('0.0312', '12,346', '1')
    """
    if not _is_finite(value):
        return NONE
    if value == 0:
        return "0"
    size = abs(value)
    if size >= 1e7 or size < 1e-4:
        mantissa, _, exponent = f"{size:.2e}".partition("e")
        text = f"{mantissa.rstrip('0').rstrip('.')}e{str(int(exponent)).replace('-', MINUS)}"
    else:
        text = f"{size:,.0f}" if size >= 999.5 else f"{size:.3g}"
    return f"{MINUS}{text}" if value < 0 else text


def seconds(value: float | None) -> str:
    """A time in the unit that fits.

    >>> seconds(0.25), seconds(75), seconds(7300)
    ('0.25\\u202fs', '1\\u202fmin 15\\u202fs', '2\\u202fh 1\\u202fmin')
    """
    if not _is_finite(value):
        return NONE
    if value < 60:
        return f"{value:.3g}{THIN}s" if value < 10 else f"{value:.0f}{THIN}s"
    minutes, rest = divmod(round(value), 60)
    if minutes < 60:
        return f"{minutes}{THIN}min {rest}{THIN}s"
    return f"{minutes // 60}{THIN}h {minutes % 60}{THIN}min"


def plural(count: int, word: str) -> str:
    """A count with its noun.

    >>> plural(1, "task"), plural(2000, "task")
    ('1 task', '2,000 tasks')
    """
    return f"{count:,} {word}{'' if count == 1 else 's'}"


def _is_finite(value: float | None) -> TypeGuard[float]:
    return value is not None and math.isfinite(value)
