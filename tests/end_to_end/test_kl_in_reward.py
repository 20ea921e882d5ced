"""Runs with a KL to the reference in the reward: two updates, measured, and what tokens earned derived again."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

pytest.importorskip("torch")

from groupwise.store.journal import Journal
from groupwise.training.config.run_file import load_run
from groupwise.training.loop import train
from groupwise.training.open_run import open_run
from tests.equivalence.example_runs import EXAMPLES, overrides_of


@pytest.mark.parametrize("name", ["rloo", "p3o", "reinforce_pp"])
def test_two_updates_with_a_kl_in_the_reward(name: str, tmp_path: Path) -> None:
    path = EXAMPLES / "methods" / f"{name}.toml"
    train(open_run(load_run(path, overrides=[*overrides_of(path), "algorithm.kl_in_reward=0.3"]), tmp_path))
    with closing(Journal(tmp_path / "journal.sqlite", read_only=True)) as journal:
        rows = [row for trajectory in journal.trajectories(2) for row in trajectory["steps"]]
    assert rows
    for row in rows:
        apart = sum(row["logp_behaviour"]) - row["extra"]["reference_logp"]
        if name == "reinforce_pp":
            assert len(row["extra"]["reference_token_logps"]) == len(row["response_ids"])
            assert sum(row["extra"]["reference_token_logps"]) == pytest.approx(row["extra"]["reference_logp"])
        else:
            assert row["reward"] - row["reward_alone"] == pytest.approx(-0.3 * apart, abs=1e-6)
    assert any(abs(sum(row["logp_behaviour"]) - row["extra"]["reference_logp"]) > 1e-4 for row in rows)  # it has moved
