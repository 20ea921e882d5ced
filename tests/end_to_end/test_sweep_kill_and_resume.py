"""A sweep of five seeds that is killed and resumed gives the table of the uninterrupted one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")

from tests.run_file_sections import TINY_WORD_WORLD

ROOT = Path(__file__).parents[2]
RUN = f"""
device = "cpu"
threads = 1

[algorithm]
method = "dr_grpo"
{TINY_WORD_WORLD}heads = 2

[rollout]
max_tokens = 1
group_size = 16

[training]
updates = 4
tasks = 4
checkpoint_every = 1

[evaluation]
split = "train"
tasks = 4
rollouts = 20
temperature = 1.0
every = 2

[warm_start]
tasks = 4
epochs = 6
learning_rate = 1e-2
"""


@pytest.mark.more
def test_a_sweep_that_is_killed_and_resumed_gives_the_same_table(tmp_path: Path) -> None:
    file = tmp_path / "run.toml"
    file.write_text(RUN, encoding="utf-8")
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])}
    ran = subprocess.run(
        [sys.executable, "-m", "tests.end_to_end.sweeping", str(file), str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
        env=environment,
    )
    assert ran.returncode == 0, ran.stderr
    info = json.loads(ran.stdout)
    assert info["whole"] == 0, (tmp_path / "whole.log").read_text(encoding="utf-8")
    assert [kill["status"] for kill in info["kills"]] == [-9, -9]
    assert all(kill["in_flight"] and kill["finished"] < 10 for kill in info["kills"])
    # A run that dies takes no other with it, and is missing from the table until the sweep goes on.
    assert info["killed_run"]["status"] == 1
    assert info["killed_run"]["missing"] == [info["killed_run"]["victim"]]
    assert info["resumed"] == 0
    assert info["touched"] == [info["killed_run"]["victim"]]
    results = [(tmp_path / name / "results.json").read_text(encoding="utf-8") for name in ("whole", "killed")]
    assert results[0] == results[1]
    variants = json.loads(results[0])["variants"]
    assert [len(variant["seeds"]) for variant in variants] == [5, 5]
    assert (
        len({seed["final"] for variant in variants for seed in variant["seeds"]}) > 3
    )  # a table of equal numbers proves nothing
