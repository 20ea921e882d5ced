"""docs/learn/own_data.md, its files: questions train, answers are checked, and a changed file is noticed."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

pytest.importorskip("torch")

import groupwise as library
from groupwise.store.journal import Journal
from tests.architecture.markdown import blocks_of
from tests.unit.cli.conftest import Run
from tests.unit.cli.conftest import groupwise as groupwise

ROOT = Path(__file__).parents[2]
PAGE = "docs/learn/own_data.md"
REST = """
[algorithm]
method = "grpo"

[model]
kind = "tiny"
hidden = 32
layers = 1
heads = 2

[rollout]
max_tokens = 2
group_size = 8

[training]
updates = 2
tasks = 4
checkpoint_every = 1

[evaluation]
tasks = 6
rollouts = 2
temperature = 1.0

[warm_start]
tasks = 60
epochs = 8
batch_tokens = 128
"""
"""Settings of a shorter run than the page's, and all that its sections on rewards need."""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder as a reader of the page has it, with more rows of the same."""
    [rows] = blocks_of(PAGE, "jsonl")
    [code] = blocks_of(PAGE, "python")
    shutil.copy(ROOT / "examples" / "own_questions.jsonl", tmp_path / "questions.jsonl")
    own = [json.loads(line) for line in (tmp_path / "questions.jsonl").read_text(encoding="utf-8").splitlines()]
    for row in map(json.loads, rows.text.splitlines()):
        assert row in [{name: given[name] for name in row} for given in own], "the page's rows are the example's"
    (tmp_path / "rewards.py").write_text(code.text, encoding="utf-8")
    judged, _, own_reward = blocks_of(PAGE, "toml")
    (tmp_path / "page.toml").write_text(judged.text, encoding="utf-8")
    (tmp_path / "run.toml").write_text(f'extends = "page.toml"\n{REST}', encoding="utf-8")
    (tmp_path / "own_reward.toml").write_text(f"{own_reward.text}\n{REST}", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def read_lines() -> list[str]:
    return Path("questions.jsonl").read_text(encoding="utf-8").splitlines()


def open_journal() -> Journal:
    return Journal(Path("run") / "journal.sqlite", read_only=True)


def test_the_run_of_the_page_is_judged_by_the_built_in_verifier(folder: Path, groupwise: Run) -> None:
    assert groupwise("train", "run.toml", "--out", "run").status == 0
    answers = {row["question"]: row["answer"] for row in map(json.loads, read_lines())}
    with open_journal() as journal:
        rollouts = [record["steps"][0] for number in (1, 2) for record in journal.trajectories(number)]
    assert len(rollouts) == 2 * 4 * 8
    for step in rollouts:
        assert step["reward"] == float(step["action"] == answers[step["observation"]])
    assert {step["reward"] for step in rollouts} == {0.0, 1.0}
    evaluated = groupwise("evaluate", "run", "--trust", "--seeds", "1")
    assert {"less", "more"} <= {line.split()[0] for line in evaluated.out.splitlines() if line.strip()}


def test_a_function_of_ones_own_judges_with_the_columns_of_the_row(folder: Path) -> None:
    library.train("own_reward.toml", "run")
    with open_journal() as journal:
        earned = {record["steps"][0]["reward"] for record in journal.trajectories(1)}
        rows = journal.evaluations()
    assert earned <= {0.0, 0.5, 1.0}
    assert len(earned) > 1
    assert {row.success for row in rows} <= {0.0, 1.0}
    assert all(row.success == float(row.outcome >= 1.0) for row in rows)


def test_a_changed_file_is_noticed_when_the_run_is_resumed(folder: Path, groupwise: Run) -> None:
    assert groupwise("train", "run.toml", "--out", "run", "--set", "training.updates=1").status == 0
    lines = (folder / "questions.jsonl").read_text(encoding="utf-8").splitlines()
    (folder / "questions.jsonl").write_text("\n".join(reversed(lines)) + "\n", encoding="utf-8")
    again = groupwise("train", "run.toml", "--out", "run", "--resume", "--set", "training.updates=2")
    assert again.status == 0
    assert "task_set was" not in again.err, "another order is the same task set"
    task_set = groupwise("tasks", "run.toml", "--trust", "--out", "task_set.json")
    assert task_set.status == 0
    mended = [json.loads(line) for line in lines]
    for row in mended:
        row["topic"] = row["topic"].upper()
    (folder / "questions.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in mended), encoding="utf-8")
    noticed = groupwise("train", "run.toml", "--out", "run", "--resume", "--set", "training.updates=3")
    assert noticed.status == 0
    for split in ("train", "test"):
        assert f"changed since the run began: the {split} task set was " in noticed.err
    refused = groupwise(
        "train",
        "run.toml",
        "--out",
        "run",
        "--resume",
        "--set",
        'task_set="task_set.json"',
        "--set",
        "training.updates=4",
    )
    assert refused.status == 2
    assert "task_set.json: the train task set changed: " in refused.err


def test_what_is_wrong_stops_before_a_model_loads(folder: Path, groupwise: Run) -> None:
    missing = groupwise("train", "run.toml", "--out", "run", "--set", "env.columns.prompt=prompt")
    assert missing.status == 2
    assert (
        "questions.jsonl:1: there is no column 'prompt' for the prompt; it has id, question, answer, topic. Set "
        "env.columns.prompt to the right column"
    ) in missing.err
    (folder / "rewards.py").write_text("def match_answer(completions, target): ...\n", encoding="utf-8")
    untaken = groupwise("train", "own_reward.toml", "--out", "run")
    assert untaken.status == 2
    assert "rewards.py:match_answer' takes 'target', which is no column of task 'data_set-train-" in untaken.err
    assert not (folder / "run").exists()
