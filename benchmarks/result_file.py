"""Results as JSON files."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any


def describe_command(module: str, words: Sequence[str]) -> str:
    """The command of a result; absolute paths are shortened to their last part.

    >>> describe_command("benchmarks.lab", ["--games=/data/json.tar.xz", "--write", "runs/lab.json", "--out", "/tmp/x"])
    'python -m benchmarks.lab --games=json.tar.xz --write runs/lab.json --out x'
    """
    shown = []
    for word in words:
        option, has_value, value = word.partition("=")
        before, path = (f"{option}=", value) if has_value and option.startswith("--") else ("", word)
        shown.append(before + (Path(path).name if Path(path).is_absolute() else path))
    return shlex.join(["python", "-m", module, *shown])


@cache
def read_commit() -> str:
    """The commit of this code, with `-changed` after it if tracked files differ; results themselves do not count.

    Without a git checkout, it is the variable GROUPWISE_COMMIT; empty if neither exists.
    """
    commit = _ask_git("rev-parse", "HEAD")
    if not commit:
        return os.environ.get("GROUPWISE_COMMIT", "")
    changed = _ask_git("status", "--porcelain", "--untracked-files=no", "--", ":/", ":(top,exclude)benchmarks/results")
    return f"{commit}-changed" if changed else commit


def _ask_git(*words: str) -> str:
    try:
        asked = subprocess.run(["git", *words], cwd=Path(__file__).parent, capture_output=True, text=True, check=False)
    except OSError:  # there is no git
        return ""
    return asked.stdout.strip()


def write_result(result: dict[str, Any], path: Path | None) -> None:
    """Write a result if asked to, with the commit of this code if it has none."""
    write_json({"commit": read_commit(), **result}, path)


def write_json(result: dict[str, Any], path: Path | None) -> None:
    """Write a result unchanged if asked to, and create its folders."""
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")


def write_runs(content: dict[str, Any], records: Sequence[dict[str, Any]], path: Path | None) -> None:
    """Write a result and its runs if asked to, one row per line."""
    if path is not None:
        lines = [f" {json.dumps(name)}: {json.dumps(value)}" for name, value in content.items()]
        runs = ",\n  ".join(json.dumps(record) for record in records)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("{\n" + ",\n".join([*lines, f' "runs": [\n  {runs}\n ]']) + "\n}\n", encoding="utf-8")
