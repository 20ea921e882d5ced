"""The arithmetic of the benchmark of engines on a GPU: what is counted, medians, ratios of neighbours."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from benchmarks.vllm_update.summary import summarise
from benchmarks.vllm_update.variants import PHASES, Shape, describe_variant
from groupwise.training.config.run_file import decode_run


def make_update(number: int, rollout: float, learn: float) -> dict[str, Any]:
    return {
        "seconds": rollout + learn,
        "stages": {"rollout": rollout, "learn": learn},
        "inside": {"rollout: engine": rollout / 2},
        "total_steps": 100 * number,
        "metrics": {"learner/tokens": 7.0, "learner/token_ratio": 9.0},
    }


def make_variant(*rollouts: float) -> list[dict[str, Any]]:
    return [make_update(number, rollout, 1.0) for number, rollout in enumerate(rollouts, start=1)]


def test_warm_updates_and_the_last_are_not_counted() -> None:
    (variant,) = summarise({"ours": make_variant(90.0, 3.0, 5.0, 4.0, 70.0)}, [], warm=1)["variants"].values()
    assert (variant["updates"], variant["seconds"], variant["min_seconds"], variant["max_seconds"]) == (
        3,
        5.0,
        4.0,
        6.0,
    )
    assert variant["stages"] == {"rollout": 4.0, "learn": 1.0}
    assert variant["inside"] == {"rollout: engine": 2.0}
    assert variant["environment_steps"] == 100


def test_ratios_are_of_updates_made_one_after_the_other() -> None:
    variants = {"ours": make_variant(9.0, 1.0, 3.0, 7.0, 9.0), "theirs": make_variant(9.0, 3.0, 7.0, 15.0, 9.0)}
    (pair,) = summarise(variants, [("ours", "theirs")], warm=1)["pairs"].values()
    assert pair == {"ratio": 2.0, "ratios": [2.0, 2.0, 2.0]}


@pytest.mark.parametrize("updates", [0, 1, 2])
def test_an_variant_that_got_nowhere_is_left_out(updates: int) -> None:
    variants = {"ours": make_variant(9.0, 1.0, 3.0), "theirs": make_variant(*[1.0] * updates)}
    summary = summarise(variants, [("ours", "theirs")], warm=1)
    assert list(summary["variants"]) == ["ours"]
    assert summary["pairs"] == {}


@pytest.mark.parametrize("device", ["cpu", "cuda"])
@pytest.mark.parametrize("phase", PHASES)
def test_variants_of_a_phase_are_runs_that_differ_in_engine_or_lag_alone(phase: str, device: str) -> None:
    shape = Shape(model=Path("model"), device=device, updates=5, max_steps=10, token_budget=8192)
    first, second = (describe_variant(variant, shape, "http://127.0.0.1:1") for variant in PHASES[phase])
    runs = [decode_run(settings) for settings in (first, second)]
    if phase == "engines":
        assert [run.rollout.lag for run in runs] == [0, 0]
        assert first["engine"].pop("kind") != second["engine"].pop("kind")
        assert {**first, "engine": {}} == {**second, "engine": {}}
    else:
        assert [settings["rollout"].pop("lag") for settings in (first, second)] == [0, 1]
        assert first == second
