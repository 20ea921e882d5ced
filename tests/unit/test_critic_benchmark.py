"""The benchmark of methods with a critic: finished runs are kept, and runs are compared by seed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

from benchmarks import critic


def test_a_finished_run_is_not_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Any] = []

    def train(name: str, seed: int, *, is_short: bool) -> dict[str, Any]:
        made.append((name, seed, is_short))
        return {"variant": name, "seed": seed}

    monkeypatch.setattr(critic, "train_variant", train)
    folder = tmp_path / "runs"
    expected = {"variant": "ppo", "seed": 3}
    assert critic.train_once((3, "ppo"), folder=folder, is_short=True) == expected
    assert critic.train_once((3, "ppo"), folder=folder, is_short=True) == expected
    assert made == [("ppo", 3, True)]
    assert [json.loads(file.read_text()) for file in folder.iterdir()] == [expected]


def test_variants_are_compared_with_grpo_at_the_same_seed() -> None:
    after = {"grpo": (0.25, 0.5, 0.25, 0.5, 0.25), "ppo": (0.5, 0.75, 0.75, 1.0, 0.5)}
    records = [
        {"variant": name, "seed": seed, "after": value}
        for name, values in after.items()
        for seed, value in enumerate(values)
    ]
    rows = critic.compare(records)
    assert rows["ppo"]["above_grpo"] == [0.25, 0.25, 0.5, 0.5, 0.25]
    assert rows["ppo"]["mean"] == 0.35
    deviation = (3 * 0.1**2 + 2 * 0.15**2) ** 0.5 / 2
    assert rows["ppo"]["half_width"] == pytest.approx(2.776 * deviation / 5**0.5, rel=5e-3)
