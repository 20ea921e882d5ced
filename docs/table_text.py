"""Results as the text of Markdown tables, for the scripts that write pages."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parents[1] / "benchmarks" / "results"


@cache
def result(name: str) -> Any:
    """What a benchmark wrote."""
    return json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table; all but its first column stand to the right, so that digits are beneath one another."""
    rule = ["---", *["---:"] * (len(head) - 1)]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in (head, rule, *rows))


def percent(share: float, digits: int = 1) -> str:
    """A share as per cent, without its sign."""
    return f"{100 * share:.{digits}f}"


def interval(ends: Sequence[float], digits: int = 1) -> str:
    """A 95 % interval in per cent."""
    return " to ".join(percent(end, digits) for end in ends)


def success(case: dict[str, Any]) -> str:
    """A share of successes with its 95 % interval."""
    return f"{percent(case['success'])} % ({interval(case['interval'])})"


def times(ratio: float | None, digits: int = 2) -> str:
    """How many times as fast, or as few; nothing where it was not measured."""
    return "-" if ratio is None else f"{ratio:.{digits}f}x"
