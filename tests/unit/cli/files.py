"""Small rollouts files for the command-line tests, written line by line."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

EXAMPLE = Path(__file__).parents[3] / "examples" / "alfworld_rollouts.jsonl"
HEADER = {"format": "groupwise.rollouts", "version": 2, "meta": {}}


def row(task: str, rollout: str, index: int, state: Any, reward: float, **more: Any) -> dict[str, Any]:
    return {"task": task, "rollout": rollout, "step": index, "state": state, "reward": reward} | more


def write(path: Path, rows: Iterable[Mapping[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(line) + "\n" for line in (HEADER, *rows)), encoding="utf-8")
    return path


# Task t: rollouts a (s, m; return 1) and b (s, m; return 0). Task u: rollouts a (return 0) and c (return 4).
ROWS = [
    row("t", "a", 0, "s", 0.0, action="go"),
    row("t", "a", 1, "m", 1.0, action="take"),
    row("t", "b", 0, "s", 0.0, action="go"),
    row("t", "b", 1, "m", 0.0, action="drop"),
    row("u", "a", 0, "s", 0.0, action="[bold]go[/]"),
    row("u", "c", 0, "s", 4.0, action="go"),
]
