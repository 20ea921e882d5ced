"""What a stage has found so far, in a file that is written anew at every turn: whoever is cut off leaves it behind."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any


def read_record(path: Path) -> dict[str, Any]:
    """What was found before; empty where nothing was."""
    return dict(json.loads(path.read_text())) if path.is_file() else {}


def write_record(path: Path, record: dict[str, Any]) -> None:
    """Write a record, whole or not at all."""
    draft = path.with_name(f".{path.name}.tmp")
    draft.write_text(json.dumps(record))
    os.replace(draft, path)


def method_record(folder: Path, method: str) -> Path:
    """Where a method's record lies."""
    return folder / f"{method}.json"


def start_record(folder: Path) -> Path:
    """Where the record of the start lies."""
    return folder / "start.json"
