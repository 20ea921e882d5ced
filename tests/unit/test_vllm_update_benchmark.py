"""The arithmetic of the benchmark of engines on a GPU: what is counted, medians, ratios of neighbours."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from benchmarks.vllm_update.arms import PHASES, Shape, describe_arm
from benchmarks.vllm_update.summary import summarise
from groupwise.training.config.run_file import decode_run


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


@pytest.mark.parametrize("device", ["cpu", "cuda"])
@pytest.mark.parametrize("phase", PHASES)
def test_arms_of_a_phase_are_runs_that_differ_in_engine_or_lag_alone(phase: str, device: str) -> None:
    shape = Shape(model=Path("model"), device=device, updates=5, max_steps=10, token_budget=8192)
    first, second = (describe_arm(arm, shape, "http://127.0.0.1:1") for arm in PHASES[phase])
    runs = [decode_run(settings) for settings in (first, second)]
    if phase == "engines":
        assert [run.rollout.lag for run in runs] == [0, 0]
        assert first["engine"].pop("kind") != second["engine"].pop("kind")
        assert {**first, "engine": {}} == {**second, "engine": {}}
    else:
        assert [settings["rollout"].pop("lag") for settings in (first, second)] == [0, 1]
        assert first == second
