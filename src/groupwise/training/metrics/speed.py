"""How fast an update went: sampling, learning, and the environments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from groupwise.core.records import Trajectory
from groupwise.core.totals import Totals
from groupwise.rollout.hosts.waiting import Waiting


def speed_metrics(
    played: Sequence[Trajectory], totals: Totals, seconds: Mapping[str, float], waiting: Waiting
) -> dict[str, float]:
    """Tokens a second of sampling and of learning, from the seconds by stage; steps a second of environments."""
    sampled = sum(len(step.response_ids) for trajectory in played for step in trajectory.steps)
    counted = {
        "sampled_tokens": (sampled, seconds.get("seconds/rollout")),
        "trained_tokens": (totals.tokens, seconds.get("seconds/learn")),
        "env_steps": (waiting.steps, waiting.seconds),
    }
    found = {f"speed/{name}": number / taken for name, (number, taken) in counted.items() if number and taken}
    return found | {"speed/env_seconds": waiting.seconds}
