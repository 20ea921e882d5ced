"""A rollout plan from outside the tree: from a run file alone, killed and resumed to the same bits."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

from groupwise.store.journal import Journal
from tests.outside.running import PACKAGES, ROOT, groupwise
from tests.run_file_sections import TINY_WORD_WORLD

RUN = f"""
seed = 0
threads = 1

[algorithm]
method = "grpo"
{TINY_WORD_WORLD}
[rollout]
max_tokens = 1
group_size = 2
plan = {{ kind = "paced_rollouts:Paced", hint = "try another word" }}

[training]
updates = 6
tasks = 2
checkpoint_every = 2
curriculum = {{ kind = "shuffled", first = 2 }}

[evaluation]
tasks = 0

[warm_start]
tasks = 4
epochs = 40
expert_noise = 0.5
learning_rate = 1e-2
"""


def rollouts_of(journal: Journal, number: int) -> list[dict[str, Any]]:
    return list(journal.trajectories(number))


def test_a_plan_of_ones_own_is_killed_and_resumed_to_the_same_bits_and_inspected(tmp_path: Path) -> None:
    file = tmp_path / "run.toml"
    file.write_text(RUN, encoding="utf-8")
    path = os.pathsep.join(map(str, (ROOT / "src", ROOT, PACKAGES)))
    subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "tests.end_to_end.killing", str(file), str(tmp_path), "3"],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": path, "OMP_NUM_THREADS": "1"},
        check=True,
        timeout=120,
        capture_output=True,
    )
    weights = [tmp_path / name / "checkpoints" / "0006" / "model.safetensors" for name in ("whole", "killed")]
    assert weights[0].read_bytes() == weights[1].read_bytes()
    with (
        Journal(tmp_path / "whole" / "journal.sqlite", read_only=True) as whole,
        Journal(tmp_path / "killed" / "journal.sqlite", read_only=True) as killed,
    ):
        assert whole.update_numbers() == killed.update_numbers() == [1, 2, 3, 4, 5, 6]
        assert whole.digest() == killed.digest()
        check_budgets(whole)
        number, task, rollout = check_second_rounds(whole)
    place = ("--update", str(number), "--task", task, "--rollout", str(rollout))
    shown = groupwise("inspect", "whole", *place, cwd=tmp_path).stdout
    assert re.search(rf"rollouts? [\d, ]*\b{rollout}\b[\d, ]* requested: all ", shown)
    assert "rollouts failed; temperature 1." in shown
    assert "joins unhinted; trains without its hint" in shown


def check_budgets(journal: Journal) -> None:
    """The number of unhinted rollouts at each task follows from how the earlier ones went."""
    past: dict[str, list[list[float]]] = {}
    sizes = set()
    for number in journal.update_numbers():
        now: dict[str, list[float]] = {}
        for row in rollouts_of(journal, number):
            if row["origin"] == "fresh":
                now.setdefault(row["task"], []).append(row["success"])
        for task, scores in now.items():
            newest = [score for update in reversed(past.get(task, [])) for score in update][:16]
            share = sum(newest) / len(newest) if newest else 0.0
            assert len(scores) == 2 + round(4 * share * (1 - share) * 4)
            sizes.add(len(scores))
        for task, scores in now.items():
            past.setdefault(task, []).append(scores)
    assert len(sizes) > 1, "some task got more than another"


def check_second_rounds(journal: Journal) -> tuple[int, str, int]:
    """Hinted rollouts join exactly the groups that failed; the update, task and number of one of them."""
    shown = None
    for number in journal.update_numbers():
        rows = rollouts_of(journal, number)
        for task in {row["task"] for row in rows}:
            fresh = [row for row in rows if row["task"] == task and row["origin"] == "fresh"]
            hinted = [row for row in rows if row["task"] == task and row["origin"] == "hinted"]
            assert len(hinted) == (0 if any(row["success"] for row in fresh) else 2)
            for row in hinted:
                assert row["steps"][0]["prompt_ids"] == fresh[0]["steps"][0]["prompt_ids"], "it trains without the hint"
                shown = shown or (number, task, row["rollout"])
    assert shown is not None
    return shown
