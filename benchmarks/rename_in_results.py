"""Update the names in recorded results. No number changes, and a second run changes nothing.

python -m benchmarks.rename_in_results
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results"
RENAMED: dict[str, dict[str, str]] = {
    "engine.json": {
        "slots": "static_cache_engine",
        "slots_faster_decoding": "static_cache_engine_faster_decoding",
        "slots_faster_all": "static_cache_engine_faster_all",
    },
    "gpu_update.json": {"SlotEngine": "StaticCacheEngine"},
    "prefix_gpu.json": {"runs": "chains", "runs_seconds": "chains_seconds"},
}
"""By file: what was recorded, a key or a name that stands as a value, and what it is called now."""


def rename(value: Any, names: Mapping[str, str]) -> Any:
    """The same value with current names."""
    if isinstance(value, dict):
        return {names.get(name, name): rename(inner, names) for name, inner in value.items()}
    if isinstance(value, list):
        return [rename(inner, names) for inner in value]
    return names.get(value, value) if isinstance(value, str) else value


def main() -> None:
    for name, names in RENAMED.items():
        path = RESULTS / name
        before = path.read_text(encoding="utf-8")
        indent = len(before.splitlines()[1]) - len(before.splitlines()[1].lstrip())
        after = json.dumps(rename(json.loads(before), names), indent=indent) + "\n"
        if after != before:
            path.write_text(after, encoding="utf-8")
        print(f"{path.name}: {'renamed' if after != before else 'as it was'}")


if __name__ == "__main__":
    main()
