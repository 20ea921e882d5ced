"""`groupwise evaluate`: a run folder in, success with its interval out."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("torch")

from groupwise.envs import Identity, task_set_hash
from groupwise.store.journal import Journal
from tests.unit.cli.conftest import Run
from tests.unit.cli.run_files import small


@pytest.fixture
def run(groupwise: Run, tmp_path: Path) -> Path:
    """A finished run of two updates in folder `run`."""
    assert groupwise("train", small(tmp_path), "--out", "run").status == 0
    return tmp_path / "run"


def rows(run: Path) -> set[tuple[int, str, int, int]]:
    with Journal(run / "journal.sqlite") as journal:
        return {(row.number, row.split, row.seed, row.rollout) for row in journal.evaluations()}


def test_the_latest_checkpoint_is_evaluated_over_three_seeds_and_written_down(groupwise: Run, run: Path) -> None:
    ran = groupwise("evaluate", "run", "--json", "--per-task")
    assert ran.status == 0, ran.err
    data = json.loads(ran.out)
    assert (data["number"], data["split"], data["tasks"], data["rollouts"], data["faults"]) == (
        2,
        "train",
        2,
        18,
        0,
    )
    assert list(data["by_seed"]) == ["0", "1", "2"]
    assert data["success"] == pytest.approx(sum(data["by_seed"].values()) / 3)
    assert data["interval"][0] <= data["success"] <= data["interval"][1]
    assert [line["rollouts"] for line in data["per_task"]] == [9, 9]
    assert data["categories"] == []
    assert data["mean_at"] == {"n": 9, "success": data["success"], "interval": data["interval"]}
    assert [(line["k"], line["tasks"]) for line in data["pass_at"]] == [(1, 2), (2, 2), (3, 2), (4, 2), (8, 2), (9, 2)]
    assert data["pass_at"][0]["success"] == pytest.approx(data["success"])
    solved = [line["success"] > 0 for line in data["per_task"]]
    assert data["pass_at"][-1]["success"] == sum(solved) / 2
    with Journal(run / "journal.sqlite") as journal:
        tokens = [row.tokens for row in journal.evaluations() if row.number == 2]
    assert data["tokens"] == pytest.approx(sum(filter(None, tokens)) / 18)
    assert {row for row in rows(run) if row[0] == 2} == {
        (2, "train", seed, rollout) for seed in range(3) for rollout in range(3)
    }


def test_options_take_the_place_of_the_run_files_settings(groupwise: Run, run: Path) -> None:
    before = rows(run)
    options = ("--update", "0", "--split", "test", "--tasks", "1", "--seeds", "1", "--rollouts", "5")
    ran = groupwise("evaluate", "run", *options, "--temperature", "0", "--dry-run", "--json")
    data = json.loads(ran.out)
    assert (data["number"], data["split"], data["tasks"], data["rollouts"]) == (0, "test", 1, 5)
    assert data["success"] in (0.0, 1.0)  # at temperature 0 every rollout says the same
    assert rows(run) == before


def test_with_other_settings_nothing_is_written_down(groupwise: Run, run: Path) -> None:
    before = rows(run)
    ran = groupwise("evaluate", "run", "--set", "evaluation.temperature=0", "--unset", "evaluation.rollouts", "--json")
    assert ran.status == 0, ran.err
    assert "not saved in the journal: the settings are not those of the run" in ran.err
    assert json.loads(ran.out)["rollouts"] == 6, "one at each of two tasks with three seeds"
    assert rows(run) == before


def test_the_same_evaluation_gives_the_same_numbers(groupwise: Run, run: Path) -> None:
    first, second = (groupwise("evaluate", "run", "--json").out for _ in range(2))
    assert first == second


def test_what_is_printed_for_people(groupwise: Run, run: Path) -> None:
    lines = groupwise("evaluate", "run", "--per-task", "--temperature", "0.5").out.splitlines()
    assert lines[0] == "run after update 2: 2 tasks of split train, seeds 0, 1, 2, 3 rollouts each, temperature 0.5"
    assert lines[2].startswith("success  ")
    assert lines[2].endswith("(95 % interval for tasks of this kind)")
    assert lines[3].split()[:2] == ["seed", "0:"]
    assert [line.split()[0] for line in lines[4:13]] == [
        "mean@9",
        "pass@1",
        "pass@2",
        "pass@3",
        "pass@4",
        "pass@8",
        "pass@9",
        "return",
        "steps",
    ]
    share = lines[2].removeprefix("success  ").partition("  (")[0]
    assert lines[4] == f"mean@9   {share}"
    assert lines[5] == f"pass@1   {share}"
    assert lines[13].startswith("tokens   ")
    assert 1.0 <= float(lines[13].split()[1]) <= 4.0, "at most so many a response"
    assert lines[14] == f"task_set    {task_set_hash(Identity(num_words=4, length=1).task_set('train')[:2])[:12]}"
    assert lines[16].split() == [
        *("task", "tasks", "rollouts", "pass@1", "95", "%", "interval", "pass@3", "tokens", "steps")
    ]
    assert [line.split()[0][:15] for line in lines[17:]] == ["identity-train-"] * 2


def test_one_rollout_a_task_has_no_pass_at_k(groupwise: Run, run: Path) -> None:
    out = groupwise("evaluate", "run", "--seeds", "1", "--rollouts", "1", "--dry-run").out
    assert "pass@" not in out
    assert "mean@" not in out
    assert "\ntokens   " in out


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("nowhere",), "nowhere: there is no config.toml; give a run folder, as `groupwise train` creates it"),
        (("run", "--update", "9"), "run: there is no checkpoint 9; there are: 0, 1, 2"),
        (("run", "--split", "tests"), "there is no split 'tests'; did you mean 'test'? Valid: test, train, validation"),
    ],
)
def test_what_cannot_be_is_told_in_a_sentence(groupwise: Run, run: Path, options: tuple[str, ...], said: str) -> None:
    ran = groupwise("evaluate", *options)
    assert (ran.status, ran.err) == (2, f"error: {said}\n")
