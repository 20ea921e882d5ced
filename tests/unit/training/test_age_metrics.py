"""The age of sampled tokens: by the spans of versions, token by token; and what a rollout that nobody dates says."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")

from groupwise import Step, Task, Trajectory
from groupwise.training.update_metrics import compute_age_metrics


def make_rollout(versions: tuple[int, ...], *spans: tuple[tuple[int, int], ...], tokens: int = 4) -> Trajectory:
    """A rollout whose steps were sampled in spans, or one step of so many tokens."""
    steps = [
        Step(index=index, response_ids=(7,) * sum(num for _, num in of_step), versions=of_step)
        for index, of_step in enumerate(spans)
    ]
    return Trajectory(
        id="t/0",
        task=Task(id="t"),
        rollout=0,
        steps=tuple(steps) or (Step(index=0, response_ids=(7,) * tokens),),
        versions=versions,
    )


def test_tokens_of_one_version_are_equally_old() -> None:
    rollouts = [make_rollout((3,), tokens=4), make_rollout((4,), tokens=2)]
    assert compute_age_metrics(rollouts, 4) == {"rollout/staleness": 4 / 6, "rollout/max_staleness": 1.0}


def test_tokens_of_several_versions_count_each_by_its_own() -> None:
    rollout = make_rollout((2, 4), ((2, 3), (4, 1)), ((4, 4),))
    assert compute_age_metrics([rollout], 5) == {"rollout/staleness": (3 * 3 + 5 * 1) / 8, "rollout/max_staleness": 3.0}


def test_what_nobody_dates_has_no_age() -> None:
    assert compute_age_metrics([make_rollout(())], 5) == {}
    assert compute_age_metrics([], 5) == {}
