"""What is compared: the methods of each suite, and how much an environment may be asked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent

TERSE = {"prompt": "terse"}
"""A prompt for reflection in few words, for models that know few."""


@dataclass(frozen=True)
class Suite:
    """Methods that go on from one start, on the run files of a folder."""

    methods: Mapping[str, Mapping[str, Any]]
    """What each method sets: its [algorithm], and its plan where it has one of its own."""
    budget: Mapping[str, int]
    """What a run may spend, by environment; without one, it makes the updates of its run file."""
    unit: str = "steps"
    """What is spent: environment steps, or sampled tokens."""
    baseline: str = "grpo"
    """The method whose last level the others are timed to."""


def environments(suite: str) -> list[Path]:
    """The run files of a suite, one an environment."""
    return sorted((HERE / suite).glob("*.toml"))


SUITES = {
    "dense": Suite(
        methods={
            "grpo": {"algorithm": {"method": "grpo"}},
            "gigpo": {"algorithm": {"method": "gigpo", "invalid_penalty": 0.0}},
            "hgpo": {"algorithm": {"method": "hgpo", "invalid_penalty": 0.0}},
        },
        budget={},
    ),
    "sparse": Suite(
        methods={
            "grpo": {"algorithm": {"method": "grpo"}},
            "dapo": {"algorithm": {"method": "dapo"}, "plan": {"kind": "top_up", "rounds": 3}},
            "hgpo": {"algorithm": {"method": "hgpo", "invalid_penalty": 0.0}},
            "r3": {"algorithm": {"method": "r3", "hint": TERSE}},
            "r3_hgpo": {"algorithm": {"method": "r3_hgpo", "hint": TERSE}},
            "r3 without replay": {"algorithm": {"method": "r3", "with_replay": False, "hint": TERSE}},
            "r3 without reflection": {"algorithm": {"method": "r3", "with_reflection": False}},
            "r3 without ranking": {"algorithm": {"method": "r3", "with_ranking": False, "hint": TERSE}},
        },
        budget={"chain_sum": 20_000, "countdown": 20_000, "household": 24_000},
    ),
    "llm": Suite(
        methods={
            "grpo": {"algorithm": {"method": "grpo"}},
            "r3": {"algorithm": {"method": "r3"}},
        },
        budget={"chain_sum": 100_000, "gcd": 100_000},
        unit="tokens",
    ),
}
"""Penalties for malformed responses are left out, so that methods differ in what they compare alone."""
