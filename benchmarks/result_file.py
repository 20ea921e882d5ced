"""Results as JSON files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def write_result(result: dict[str, Any], path: Path | None) -> None:
    """Write a result where that is asked for, with the folders on the way there."""
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
