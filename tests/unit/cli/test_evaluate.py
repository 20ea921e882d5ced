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


TASK_SETS = """
[[evaluation.task_sets]]
name = "seen"
tasks = 2

[[evaluation.task_sets]]
name = "unseen"
split = "test"
tasks = 3
rollouts = 1
top_k = 1
"""


@pytest.fixture
def several(groupwise: Run, tmp_path: Path) -> Path:
    """A finished run of one update that is evaluated on two task sets."""
    small(tmp_path)
    with (tmp_path / "small.toml").open("a", encoding="utf-8") as file:
        file.write(TASK_SETS)
    changes = ("env.length=2", "env.num_words=6", "training.updates=1")
    ran = groupwise("train", "small.toml", "--out", "run", "--plain", *(f"--set={change}" for change in changes))
    assert ran.status == 0, ran.err
    told = [line for line in ran.out.splitlines() if " of task set " in line]
    assert [line.partition(" of task set ")[2].partition(",")[0] for line in told] == ["seen", "unseen"] * 2
    assert ["pass@3" in line for line in told] == [True, False] * 2
    return tmp_path / "run"


def names(run: Path) -> set[tuple[int, str, str]]:
    with Journal(run / "journal.sqlite") as journal:
        return {(row.number, row.name, row.split) for row in journal.evaluations()}


def test_all_task_sets_are_one_table(groupwise: Run, several: Path) -> None:
    ran = groupwise("evaluate", "run", "--seeds", "2")
    assert ran.status == 0, ran.err
    lines = ran.out.splitlines()
    assert lines[0] == "run after update 1, seeds 0, 1"
    assert lines[2].split() == [
        *("task", "set", "tasks", "rollouts", "pass@1", "95", "%", "interval", "pass@2", "pass@3", "tokens", "steps")
    ]
    seen, unseen = lines[3:5]
    assert seen.split()[:3] == ["seen", "2", "12"]
    assert unseen.split()[:3] == ["unseen", "3", "6"]
    assert "not saved" not in ran.err
    assert names(several) == {
        (number, name, split) for number in (0, 1) for name, split in (("seen", "train"), ("unseen", "test"))
    }


def test_the_same_as_json(groupwise: Run, several: Path) -> None:
    data = json.loads(groupwise("evaluate", "run", "--seeds", "1", "--json", "--dry-run").out)
    assert data["number"] == 1
    seen, unseen = data["task_sets"]
    assert (seen["name"], seen["split"], seen["tasks"], seen["rollouts"]) == ("seen", "train", 2, 6)
    assert (unseen["name"], unseen["split"], unseen["tasks"], unseen["rollouts"]) == ("unseen", "test", 3, 3)
    assert [line["k"] for line in seen["pass_at"]] == [1, 2, 3]
    assert seen["score"] is None


def test_one_of_them_with_a_limit_of_its_own(groupwise: Run, several: Path) -> None:
    before = names(several)
    options = ("--task-set", "unseen", "--seeds", "1", "--json")
    (unseen,) = json.loads(groupwise("evaluate", "run", *options).out)["task_sets"]
    assert (unseen["name"], unseen["tokens"]) == ("unseen", pytest.approx(unseen["steps"])), "a token a step"
    ran = groupwise("evaluate", "run", *options, "--max-tokens", "2", "--temperature", "1", "--tasks", "1")
    (longer,) = json.loads(ran.out)["task_sets"]
    assert (longer["tasks"], longer["tokens"] >= longer["steps"]) == (1, True)
    assert "not saved in the journal: the settings are not those of the run" in ran.err
    assert names(several) == before


def test_only_the_tasks_of_a_file(groupwise: Run, several: Path, tmp_path: Path) -> None:
    tasks = Identity(num_words=6, length=2).task_set("test")
    (tmp_path / "ids.txt").write_text(f"\n{tasks[3].id}\n {tasks[1].id} \n", encoding="utf-8")
    ran = groupwise("evaluate", "run", "--only", "ids.txt", "--seeds", "1", "--json", "--per-task")
    (unseen,) = json.loads(ran.out)["task_sets"]
    assert (unseen["name"], unseen["tasks"]) == ("unseen", 2), "the other one has none of them"
    assert {line["name"] for line in unseen["per_task"]} == {tasks[1].id, tasks[3].id}
    assert "not saved" in ran.err
    with_one = groupwise(
        *("evaluate", "run", "--only", "ids.txt", "--seeds", "1", "--json"),
        *("--unset", "evaluation.task_sets", "--split", "test"),
    )
    assert json.loads(with_one.out)["tasks"] == 2


def test_the_hash_says_that_some_tasks_are_another_task_set(groupwise: Run, run: Path, tmp_path: Path) -> None:
    (task, *_) = Identity(num_words=4, length=1).task_set("train")
    (tmp_path / "ids.txt").write_text(task.id, encoding="utf-8")
    hashes = [
        json.loads(groupwise("evaluate", "run", "--seeds", "1", "--json", *more).out)["task_set"]
        for more in ((), ("--only", "ids.txt"))
    ]
    assert len(set(hashes)) == 2


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (
            ("--task-set", "sen"),
            "--task-set: there is no task set 'sen'; did you mean 'seen'? Valid: seen, unseen",
        ),
        (
            ("--split", "test"),
            "--split: the run file names task sets; choose one with --task-set, or add --unset evaluation.task_sets",
        ),
        (("--set", "evaluation.tasks=0"), "evaluation.tasks is 0, so there is nothing to evaluate; give --tasks N"),
        (("--only", "nowhere.txt"), "--only nowhere.txt: cannot be read ("),
        (("--only", "empty.txt"), "--only empty.txt: no task ids; write one id per line"),
        (
            ("--only", "wrong.txt"),
            "1 of 1 ids are no tasks of the split test, train, such as 'nobody'; `groupwise evaluate RUN --per-task "
            "--json` lists the ids",
        ),
    ],
)
def test_what_no_task_set_is_is_told_in_a_sentence(
    groupwise: Run, several: Path, tmp_path: Path, options: tuple[str, ...], said: str
) -> None:
    (tmp_path / "empty.txt").write_text("\n \n", encoding="utf-8")
    (tmp_path / "wrong.txt").write_text("nobody\n", encoding="utf-8")
    ran = groupwise("evaluate", "run", *options)
    assert ran.status == 2
    assert ran.err.startswith(f"error: {said}")


def test_a_run_without_task_sets_has_none_to_choose(groupwise: Run, run: Path) -> None:
    ran = groupwise("evaluate", "run", "--task-set", "seen")
    assert ran.err.startswith("error: --task-set: the run file has no [[evaluation.task_sets]]; choose a split with ")


def test_inspect_and_report_show_every_task_set(groupwise: Run, several: Path) -> None:
    lines = [line for line in groupwise("inspect", "run").out.splitlines() if ": success " in line]
    assert [line.partition(":")[0] for line in lines] == [
        f"{name}, {when}" for name in ("seen", "unseen") for when in ("before training", "after update 1")
    ]
    assert ["pass@3" in line for line in lines] == [True, True, False, False]
    assert [" tokens " in line for line in lines] == [True, True, False, False]
    verdicts = json.loads(groupwise("inspect", "run", "--json").out)["evaluations"]
    assert [(verdict["name"], verdict["split"]) for verdict in verdicts] == [("seen", "train"), ("unseen", "test")]
    assert groupwise("report", "run").status == 0
    page = (several / "report.html").read_text(encoding="utf-8")
    section = page[page.index('id="task_sets"') :].partition("</section>")[0]
    assert section.index("seen") < section.index("unseen")
    assert "(k = 3)" in section
