"""The arithmetic of the benchmark of engines on a GPU: what is counted, medians, ratios of neighbours."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks.vllm_update.summary import summarise


def make_update(number: int, rollout: float, learn: float) -> dict[str, Any]:
    return {
        "seconds": rollout + learn,
        "stages": {"rollout": rollout, "learn": learn},
        "inside": {"rollout: engine": rollout / 2},
        "total_steps": 100 * number,
        "metrics": {"learner/tokens": 7.0, "learner/token_ratio": 9.0},
    }


def make_arm(*rollouts: float) -> list[dict[str, Any]]:
    return [make_update(number, rollout, 1.0) for number, rollout in enumerate(rollouts, start=1)]


def test_warm_updates_and_the_last_are_not_counted() -> None:
    (arm,) = summarise({"ours": make_arm(90.0, 3.0, 5.0, 4.0, 70.0)}, [], warm=1)["arms"].values()
    assert (arm["updates"], arm["seconds"], arm["min_seconds"], arm["max_seconds"]) == (3, 5.0, 4.0, 6.0)
    assert arm["stages"] == {"rollout": 4.0, "learn": 1.0}
    assert arm["inside"] == {"rollout: engine": 2.0}
    assert arm["environment_steps"] == 100


def test_ratios_are_of_updates_made_one_after_the_other() -> None:
    arms = {"ours": make_arm(9.0, 1.0, 3.0, 7.0, 9.0), "theirs": make_arm(9.0, 3.0, 7.0, 15.0, 9.0)}
    (pair,) = summarise(arms, [("ours", "theirs")], warm=1)["pairs"].values()
    assert pair == {"ratio": 2.0, "ratios": [2.0, 2.0, 2.0]}


@pytest.mark.parametrize("updates", [0, 1, 2])
def test_an_arm_that_got_nowhere_is_left_out(updates: int) -> None:
    arms = {"ours": make_arm(9.0, 1.0, 3.0), "theirs": make_arm(*[1.0] * updates)}
    summary = summarise(arms, [("ours", "theirs")], warm=1)
    assert list(summary["arms"]) == ["ours"]
    assert summary["pairs"] == {}
