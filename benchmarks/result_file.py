"""Results as JSON files."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any


def describe_command(module: str, words: Sequence[str]) -> str:
    """The command that a result names: absolute paths, which are of one machine, by their last part.

    >>> describe_command("benchmarks.lab", ["--games=/data/json.tar.xz", "--write", "runs/lab.json", "--out", "/tmp/x"])
    'python -m benchmarks.lab --games=json.tar.xz --write runs/lab.json --out x'
    """
    shown = []
    for word in words:
        option, has_value, value = word.partition("=")
        before, path = (f"{option}=", value) if has_value and option.startswith("--") else ("", word)
        shown.append(before + (Path(path).name if Path(path).is_absolute() else path))
    return shlex.join(["python", "-m", module, *shown])


def write_result(result: dict[str, Any], path: Path | None) -> None:
    """Write a result where that is asked for, with the folders on the way there."""
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
