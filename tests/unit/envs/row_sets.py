"""Rows as people have them, in files."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

Row = Mapping[str, Any]


def sums(first: int, num: int) -> list[dict[str, Any]]:
    """Rows in GSM8K's columns, and one more."""
    return [
        {"question": f"What is {n} plus {n}?", "answer": f"Twice {n}. #### {2 * n:,}", "level": n % 3}
        for n in range(first, first + num)
    ]


def write_rows(path: Path, rows: Iterable[Row]) -> str:
    """Write rows as JSON lines; the file's name."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")
    return str(path)
