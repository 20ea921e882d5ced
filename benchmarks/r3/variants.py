"""What is compared: GRPO, DAPO, each mechanism of R^3 by itself in the readings that there are, and all three."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

BASELINE = "grpo"
LOSS: Mapping[str, Any] = {"old": "engine", "penalties": []}
"""Shared by all: no penalty on the distance from the start, and one forward pass less."""
BARE = {"method": "r3_grpo_ablation"}
HINT = {"prompt": "terse"}
"""For models that know few words."""
FIXED = {"scale": {"kind": "fixed_unless_solved", "ddof": 0}}

VARIANTS: Mapping[str, Mapping[str, Any]] = {
    BASELINE: {"algorithm": BARE},
    "dapo": {"algorithm": {"method": "dapo"}, "plan": {"kind": "top_up", "rounds": 3}},
    "rank": {"algorithm": {**BARE, "with_ranking": True}},
    "rank, finished 0": {
        "algorithm": {**BARE, "shapers": [{"kind": "entropy_ranking", "finished": "zero"}]},
    },
    "rank, fixed scale": {"algorithm": {**BARE, "with_ranking": True, "advantage": FIXED}},
    "replay": {"algorithm": {**BARE, "with_replay": True}},
    "replay, ratio 1": {
        "algorithm": {**BARE, "with_replay": True, "replay": {"ratio": "recomputed", "max_log_ratio": 1e9}}
    },
    "reflect": {"algorithm": {**BARE, "with_reflection": True, "hint": HINT}},
    "all three": {"algorithm": {"method": "r3", "hint": HINT}},
}
"""The [algorithm] of each variant but for its loss, and its plan where it has one of its own. Ranking pays finished
answers the mean of the ranked ones (ours), or 0 (the paper's letter); replay takes the stored ratio (ours), or one that
begins at 1 (the letter); a fixed scale divides groups without success by 0.5."""
