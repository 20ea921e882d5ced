"""`groupwise lab`: a table of a skill with the exact truth, or the run's own model by continuations."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("torch")

from tests.unit.cli.calls import words
from tests.unit.cli.conftest import Run

LAKE = """
seed = 0
threads = 1
[algorithm]
method = "grpo"
[env]
kind = "gridworld"
size = 3
num_holes = 1
max_steps = 4
[model]
kind = "tiny"
hidden = 16
layers = 1
heads = 2
[rollout]
max_tokens = 2
history = {history}
group_size = 4
"""
WINDOW = '{ kind = "window", steps = 0 }'


def write_run(folder: Path, *, history: str = WINDOW) -> str:
    (folder / "lake.toml").write_text(LAKE.format(history=history), encoding="utf-8")
    return "lake.toml"


def test_a_table_of_a_skill_has_the_exact_truth(groupwise: Run, tmp_path: Path) -> None:
    asked = ("--skill", "1", "--updates", "8", "--method", "rloo", "--method", "gigpo", "--method", "prorag")
    ran = groupwise("lab", write_run(tmp_path), *asked, "--out", "lab.json")
    assert ran.status == 0, ran.err
    lines = words(ran.out)
    assert lines[0] == "method level error bias misdirection noise sign rank"
    assert {line.split()[0] for line in lines[1:3]} == {"rloo", "gigpo"}
    assert any(line.startswith("prorag: not measured (JudgedSegments needs 'judge'") for line in lines)
    assert lines[-1].endswith("standard error 0.000")
    written = json.loads((tmp_path / "lab.json").read_text(encoding="utf-8"))
    assert written["recording"]["rollouts"] == 8 * 4 * 8
    again = groupwise("lab", "lake.toml", *asked, "--json")
    assert json.loads(again.out) == written


def test_the_model_of_a_run_is_held_against_continuations(groupwise: Run, tmp_path: Path) -> None:
    asked = ("--tasks", "2", "--rollouts", "8", "--updates", "8", "--situations", "4", "--continuations", "16")
    # Of the words that a model says that knows nothing, some are right in this world.
    world = ("--set", 'env={kind="identity",num_words=4,length=1,max_steps=1}', "--set", "rollout.max_tokens=1")
    ran = groupwise("lab", write_run(tmp_path), *asked, "--method", "rloo", "--json", *world)
    assert ran.status == 0, ran.err
    result = json.loads(ran.out)
    assert result["recording"]["steps_with_truth"] == result["recording"]["steps"] == 2 * 8 * 8
    assert result["recording"]["truth_error"] > 0
    assert result["methods"]["rloo"]["level"] == "rollout"


def test_a_policy_that_sees_more_than_the_state_is_refused(groupwise: Run, tmp_path: Path) -> None:
    history = '{ kind = "anchored_window", low = 0, high = 2 }'
    ran = groupwise("lab", write_run(tmp_path, history=history), "--skill", "1")
    assert ran.status == 2
    assert "so the prompt contains more than the state" in ran.err


def test_a_world_that_cannot_be_listed_is_refused(groupwise: Run, tmp_path: Path) -> None:
    ran = groupwise("lab", write_run(tmp_path), "--skill", "1", "--set", 'env={kind="identity"}')
    assert ran.status == 2
    assert "the states of Identity cannot be listed" in ran.err


def test_a_result_that_could_not_be_written_is_refused_before_anything_is_played(
    groupwise: Run, tmp_path: Path
) -> None:
    for place in ("no/such/folder/lab.json", "."):
        ran = groupwise("lab", write_run(tmp_path), "--skill", "1", "--set", 'env={kind="identity"}', "--out", place)
        assert ran.status != 0
        assert f"--out {place}: " in ran.err
