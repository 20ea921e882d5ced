"""Benchmarks of variants over seeds: finished runs are kept, and runs are compared by seed."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

from benchmarks import by_seed, critic
from benchmarks.aliased import learning
from groupwise import methods


def test_a_finished_run_is_not_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Any] = []

    def train(comparison: by_seed.Comparison, name: str, seed: int, *, is_short: bool) -> dict[str, Any]:
        made.append((name, seed, is_short))
        return {"variant": name, "seed": seed}

    monkeypatch.setattr(by_seed, "train_variant", train)
    expected = {"variant": "ppo", "seed": 3}
    given: dict[str, Any] = {"comparison": critic.COMPARISON, "folder": tmp_path / "runs", "is_short": True}
    assert [by_seed.train_once((3, "ppo"), **given) for _ in range(2)] == [expected] * 2
    assert made == [("ppo", 3, True)]
    assert [json.loads(file.read_text()) for file in given["folder"].iterdir()] == [expected]


def test_variants_are_compared_with_each_base_before_them_at_the_same_seed() -> None:
    after = {
        "grpo": (0.25, 0.5, 0.25, 0.5, 0.25),
        "gigpo": (0.5, 0.75, 0.75, 1.0, 0.5),
        "hgpo": (0.5, 0.75, 0.75, 1.0, 1.0),
    }
    records = [
        {"variant": name, "seed": seed, "after": value}
        for name, values in after.items()
        for seed, value in enumerate(values)
    ]
    rows = by_seed.compare(records, ["grpo", "gigpo"], "after")
    assert [list(row) for row in rows.values()] == [
        ["by_seed"],
        ["by_seed", "above_grpo"],
        ["by_seed", "above_grpo", "above_gigpo"],
    ]
    above = rows["gigpo"]["above_grpo"]
    assert (above["by_seed"], above["mean"]) == ([0.25, 0.25, 0.5, 0.5, 0.25], 0.35)
    deviation = (3 * 0.1**2 + 2 * 0.15**2) ** 0.5 / 2
    assert above["half_width"] == pytest.approx(2.776 * deviation / 5**0.5, rel=5e-3)
    assert rows["hgpo"]["above_gigpo"]["by_seed"] == [0.0, 0.0, 0.0, 0.0, 0.5]


def test_the_recorded_command_names_the_seeds_and_the_variants(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def record(job: tuple[int, str], **_: Any) -> dict[str, Any]:
        return {"variant": job[1], "seed": job[0], "commit": "c", "after": 1.0, "training": 1.0}

    monkeypatch.setattr(by_seed, "train_once", record)
    monkeypatch.setattr(by_seed, "ProcessPoolExecutor", lambda *_, **__: ThreadPoolExecutor(1))
    chosen, result = ["--seeds", "3", "5", "--variants", "ppo"], tmp_path / "result.json"
    monkeypatch.setattr("sys.argv", ["critic", *chosen, "--write", str(result)])
    by_seed.run_benchmark(critic.COMPARISON, None, bases=["ppo"])
    assert json.loads(result.read_text())["command"] == " ".join(["python -m benchmarks.critic", *chosen])


@pytest.mark.parametrize("comparison", [critic.COMPARISON, learning.COMPARISON], ids=lambda one: one.module)
def test_every_variant_is_a_method_with_options_that_it_has(comparison: by_seed.Comparison) -> None:
    assert comparison.run.is_file()
    for options in comparison.variants.values():
        methods.build(options["method"], **{name: value for name, value in options.items() if name != "method"})
