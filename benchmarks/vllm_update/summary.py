"""Medians over the updates that are timed, by stage, and ratios of neighbours."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

Record = Mapping[str, Any]


def summarise_variant(updates: Sequence[Record], *, warm: int) -> dict[str, Any]:
    """Medians of a variant: the warm updates and the last, beside which nothing is played ahead, are not counted."""
    timed = updates[warm:-1]
    stages = dict.fromkeys(stage for update in timed for stage in update["stages"])
    parts = dict.fromkeys(part for update in timed for part in update["inside"])
    return {
        "updates": len(timed),
        "seconds": statistics.median(update["seconds"] for update in timed),
        "min_seconds": min(update["seconds"] for update in timed),
        "max_seconds": max(update["seconds"] for update in timed),
        "stages": {name: statistics.median(update["stages"].get(name, 0.0) for update in timed) for name in stages},
        "inside": {name: statistics.median(update["inside"].get(name, 0.0) for update in timed) for name in parts},
        "trained_tokens": timed[-1]["metrics"].get("learner/tokens"),
        "token_ratio": timed[-1]["metrics"].get("learner/token_ratio"),
        "environment_steps": timed[-1]["total_steps"] - updates[updates.index(timed[-1]) - 1]["total_steps"],
    }


def compare_variants(baseline: Sequence[Record], variant: Sequence[Record], *, warm: int) -> dict[str, Any]:
    """Ratios of seconds variant / baseline, of updates that were made one right after the other."""
    pairs = zip(baseline[warm:-1], variant[warm:-1], strict=False)
    ratios = [ours["seconds"] / theirs["seconds"] for theirs, ours in pairs]
    return {"ratio": statistics.median(ratios), "ratios": ratios}


def summarise(
    variants: Mapping[str, Sequence[Record]], pairs: Sequence[tuple[str, str]], *, warm: int
) -> dict[str, Any]:
    """Every variant that has an update to count, and every pair of such."""
    counted = {name: updates for name, updates in variants.items() if len(updates) > warm + 1}
    return {
        "variants": {name: summarise_variant(updates, warm=warm) for name, updates in counted.items()},
        "pairs": {
            f"{name} / {baseline}": compare_variants(counted[baseline], counted[name], warm=warm)
            for baseline, name in pairs
            if baseline in counted and name in counted
        },
    }
