"""Stateful parts from outside the tree, named by a run file alone: killed and resumed to the bit, and explained."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

from transformers import AutoModelForCausalLM

from groupwise.learner.protocol import hash_weights
from groupwise.store.checkpoint_files import find_latest_checkpoint
from groupwise.store.journal import Journal
from tests.outside.running import PACKAGES, ROOT, groupwise
from tests.run_file_sections import TINY_WORD_WORLD

UPDATES = 6
NUM_KILLS = 5
SIGNAL, FILTER = "algorithm.advantage.of", "algorithm.filters.0"
RUN = f"""
seed = 5
threads = 1

[algorithm]
method = "grpo"
filters = [{{ kind = "task_returns:Rest" }}]

[algorithm.advantage]
kind = "relative"
by = "by_task"
of = "task_returns:Surprise"
baseline = "no_baseline"
scale = "no_scale"
{TINY_WORD_WORLD}
[rollout]
max_tokens = 1
workers = 0
group_size = 16

[training]
updates = {UPDATES}
tasks = 2
checkpoint_every = 2
curriculum = {{ kind = "shuffled", first = 3 }}

[training.learner]
learning_rate = 0.02

[evaluation]
tasks = 0
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the run that was left alone (`whole`) and the one that was killed again and again (`killed`)."""
    folder = tmp_path_factory.mktemp("memory")
    file = folder / "run.toml"
    file.write_text(RUN, encoding="utf-8")
    command = [sys.executable, "-m", "tests.end_to_end.killing", str(file), str(folder), str(NUM_KILLS)]
    paths = os.pathsep.join([str(ROOT / "src"), str(ROOT), str(PACKAGES)])
    env = os.environ | {"PYTHONPATH": paths, "OMP_NUM_THREADS": "1"}
    ran = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT, env=env)
    assert ran.returncode == 0, ran.stderr
    assert len(json.loads(ran.stdout)) == NUM_KILLS
    return folder


def read_parts(checkpoint: Path) -> Mapping[str, Any]:
    """What a checkpoint remembers of parts."""
    states: Mapping[str, Any] = json.loads((checkpoint / "state.json").read_text(encoding="utf-8"))["parts"]
    return states


def test_a_run_that_was_killed_remembers_the_same_to_the_bit(folder: Path) -> None:
    last = [find_latest_checkpoint(folder / name / "checkpoints") for name in ("whole", "killed")]
    whole, killed = (path for path in last if path)
    assert (whole.name, killed.name) == (f"{UPDATES:04d}",) * 2
    assert read_parts(killed) == read_parts(whole)
    assert {path: entry["kind"] for path, entry in read_parts(whole).items()} == {
        SIGNAL: "task_returns:Surprise",
        FILTER: "task_returns:Rest",
    }
    hashes = [hash_weights(AutoModelForCausalLM.from_pretrained(path).state_dict()) for path in (whole, killed)]
    assert hashes[0] == hashes[1]


def test_its_journal_is_the_same_too_and_each_update_keeps_what_it_began_with(folder: Path) -> None:
    with open_journal(folder, "whole") as whole, open_journal(folder, "killed") as killed:
        assert killed.update_numbers() == whole.update_numbers() == list(range(1, UPDATES + 1))
        assert killed.digest() == whole.digest()
        kept = [whole.states_before(number) for number in whole.update_numbers()]
        assert kept == [killed.states_before(number) for number in killed.update_numbers()]
        for number in whole.update_numbers():
            assert list(killed.trajectories(number)) == list(whole.trajectories(number))
    assert [[state.path for state in states] for states in kept] == [[SIGNAL, FILTER]] * UPDATES
    assert kept[0][0].state == {"seen": {}}
    # What an update began with is what the checkpoint before it had; and both parts did something.
    for number in (2, 4):
        saved = read_parts(folder / "whole" / "checkpoints" / f"{number:04d}")
        assert {state.path: state.state for state in kept[number]} == {p: entry["state"] for p, entry in saved.items()}
    assert len({json.dumps(states[1].state) for states in kept}) > 2, "tasks rested"
    assert len({json.dumps(states[0].columns) for states in kept}) > 4


def test_an_old_update_is_explained_with_what_it_began_with(folder: Path) -> None:
    with open_journal(folder, "whole") as journal:
        states, last = journal.states_before(3), journal.states_before(UPDATES)
        expected = states[0].columns["expected"]
        task = next(
            task for task, value in expected.items() if value and value != last[0].columns["expected"].get(task)
        )
        rollout = next(trajectory for trajectory in journal.trajectories(3) if trajectory["task"] == task)
    asked = ("--update", "3", "--task", task, "--rollout", str(rollout["rollout"]), "--step", "0", "--json", "--trust")
    shown = json.loads(groupwise("inspect", "whole", *asked, cwd=folder).stdout)
    assert shown["value"] == shown["recorded"] == rollout["credit"][0]
    assert shown["value"] == rollout["outcome"] - expected[task]
    assert {(known["path"], known["column"]): known["value"] for known in shown["remembered"]} == {
        (SIGNAL, "expected"): expected[task],
        (FILTER, "rests"): states[1].columns["rests"][task],
    }


def test_an_audit_of_the_run_reads_the_columns_of_each_update(folder: Path) -> None:
    audit = json.loads(groupwise("audit", "whole", "--json", "--trust", cwd=folder).stdout)
    own = audit["methods"][-1]
    with open_journal(folder, "whole") as journal:
        sizes = [abs(value) for n in journal.update_numbers() for t in journal.trajectories(n) for value in t["credit"]]
    assert own["name"] == "this run's own"
    assert own["mean_size"] == pytest.approx(sum(sizes) / len(sizes), rel=1e-12)


def open_journal(folder: Path, name: str) -> Journal:
    return Journal(folder / name / "journal.sqlite", read_only=True)
