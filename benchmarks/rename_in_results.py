"""Bring recorded results up to today's names: names are replaced, no number is touched, and twice changes nothing.

python -m benchmarks.rename_in_results
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results"
RENAMED = {
    "SlotEngine": "StaticCacheEngine",
    "slots": "static_cache_engine",
    "slots_faster_decoding": "static_cache_engine_faster_decoding",
    "slots_faster_all": "static_cache_engine_faster_all",
}
"""Names of keys, and of classes that stand as values: what was recorded, and what it is called now."""
FILES = ("engine.json", "gpu_update.json")
"""The results that hold them."""


def rename(value: Any) -> Any:
    """The same value with today's names."""
    if isinstance(value, dict):
        return {RENAMED.get(name, name): rename(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [rename(inner) for inner in value]
    return RENAMED.get(value, value) if isinstance(value, str) else value


def main() -> None:
    for name in FILES:
        path = RESULTS / name
        before = path.read_text(encoding="utf-8")
        indent = len(before.splitlines()[1]) - len(before.splitlines()[1].lstrip())
        after = json.dumps(rename(json.loads(before)), indent=indent) + "\n"
        if after != before:
            path.write_text(after, encoding="utf-8")
        print(f"{path.name}: {'renamed' if after != before else 'as it was'}")


if __name__ == "__main__":
    main()
