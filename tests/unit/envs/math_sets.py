"""Small sets of problems as the publishers write them, and one way to write them down."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

Rows = Sequence[Mapping[str, Any]]


def gsm8k(first: int, num: int) -> list[dict[str, str]]:
    """Sums in GSM8K's form: a worked answer that ends in #### and the number."""
    return [
        {
            "question": f"Ann has {a} apples and buys {a + 2} more. How many apples does she have?",
            "answer": f"She has {a} + {a + 2} = <<{a}+{a + 2}={2 * a + 2}>>{2 * a + 2} apples.\n#### {2 * a + 2:,}",
        }
        for a in range(first, first + num)
    ]


def state_answers(first: int, num: int) -> list[dict[str, Any]]:
    """Squares with a stated answer, as AIME, AMC and MATH-500 are published."""
    return [{"problem": f"What is ${a}^2$?", "answer": str(a * a)} for a in range(first, first + num)]


def write_lines(path: Path, rows: Rows) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def write_json(path: Path, content: object) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content), encoding="utf-8")
    return path
