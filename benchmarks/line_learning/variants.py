"""What is compared: GRPO, and the three whose credit told lines best in `benchmarks/results/line_credit.json`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

BASELINE = "grpo"
LOSS: Mapping[str, Any] = {
    "ratio": {"kind": "token_ratio"},
    "surrogate": {"kind": "clip"},
    "aggregate": {"kind": "token_mean"},
    "penalties": [],
    "old": "engine",
}
"""One loss for all, so that credit alone differs: RLOO's ratio of whole answers would undo credit of single tokens."""

VARIANTS: Mapping[str, Mapping[str, Any]] = {
    BASELINE: {"method": "grpo"},
    "spo_chain": {"method": "spo_chain", "uncertain_tokens": 1},
    "token_gae": {
        "method": "rloo",
        "token_credit": {"kind": "token_gae", "lam": 0.95},
        "scorers": [{"kind": "segment_values", "uncertain_tokens": 1}],
    },
    "after_vsrm": {"method": "after_vsrm", "min_tokens": 1},
}
"""The [algorithm] of each variant but for its loss; settings as in `benchmarks/line_credit/measure.py`."""
