"""What a metric is: its meaning, where it lies, and what to do when it looks bad."""

from __future__ import annotations

from typing import NamedTuple

SHARE = "0 to 1"
"""The unit of shares."""


class Metric(NamedTuple):
    """What a metric is."""

    meaning: str
    """One sentence."""
    unit: str
    """Its unit, or where its values lie."""
    remedy: str
    """What a bad value looks like, and what to do then."""
