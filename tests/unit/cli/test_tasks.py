"""`groupwise tasks`: what it shows, makes, checks and refuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from groupwise.envs import SPLITS, Identity, task_set_hash
from groupwise.store.journal import EvaluatedRollout, Journal
from tests.fresh_interpreter import HELP, fresh, without
from tests.unit.cli.conftest import Run
from tests.unit.cli.run_files import small

PART = Identity(num_words=4, length=1)


def line(split: str) -> str:
    tasks = PART.task_set(split)
    return f" {split:<10} {len(tasks):>7,} tasks  {task_set_hash(tasks)[:16]}"


@pytest.fixture
def task_set(groupwise: Run) -> str:
    """A task set file of the small environment."""
    assert groupwise("tasks", "identity", "--set", "num_words=4", "--set", "length=1", "--out", "p.json").status == 0
    return "p.json"


def test_the_task_sets_of_an_environment(groupwise: Run) -> None:
    ran = groupwise("tasks", "identity", "--set", "num_words=4", "--set", "length=1")
    assert ran.status == 0, ran.err
    assert [printed.rstrip() for printed in ran.out.splitlines()] == [
        "Identity(num_words=4, length=1): 3 task sets, no task in two of them",
        *(line(split) for split in SPLITS),
    ]


def test_a_run_file_names_the_same_task_sets(groupwise: Run, tmp_path: Path) -> None:
    ran = groupwise("tasks", small(tmp_path))
    assert [printed.rstrip() for printed in ran.out.splitlines()[1:]] == [line(split) for split in SPLITS]
    changed = groupwise("tasks", "small.toml", "--set", "env.num_words=5", "--json")
    tasks = Identity(num_words=5, length=1).task_set("test")
    assert json.loads(changed.out)["task_sets"]["test"] == {
        "tasks": len(tasks),
        "hash": task_set_hash(tasks),
        "categories": {},
    }


def test_it_needs_no_torch(tmp_path: Path) -> None:
    small(tmp_path)
    shown = fresh(without("torch") + HELP.format(arguments=["tasks", str(tmp_path / "small.toml")]))
    assert shown.splitlines()[3].rstrip() == line("test")


def test_families_are_counted(groupwise: Run) -> None:
    ran = groupwise("tasks", "household", "--set", "categories=['pick', 'heat']", "--json")
    assert json.loads(ran.out)["task_sets"]["validation"]["categories"] == {"heat": 120, "pick": 120}


def test_tasks_are_listed(groupwise: Run) -> None:
    ran = groupwise("tasks", "household", "--split", "test")
    assert ran.out.splitlines()[0].startswith("household-test-")
    assert ran.out.splitlines()[0].endswith(" pick")
    assert len(ran.out.splitlines()) == 480
    (first, *_) = json.loads(groupwise("tasks", "identity", "--split", "test", "--json").out)
    assert first["id"] == Identity().task_set("test")[0].id
    assert first["payload"] == Identity().task_set("test")[0].payload


def test_a_file_is_made_and_checked(groupwise: Run, task_set: str, tmp_path: Path) -> None:
    assert groupwise("tasks", task_set).out.splitlines()[-1] == " ok equal to p.json"
    checked = groupwise("tasks", small(tmp_path), "--check", task_set)
    assert (checked.status, checked.out.splitlines()[-1]) == (0, " ok equal to p.json")


def test_another_environment_is_refused(groupwise: Run, task_set: str) -> None:
    ran = groupwise("tasks", "identity", "--check", task_set)
    assert ran.status == 2
    assert ran.err.startswith("error: p.json: the train task set changed: ")


def test_a_changed_file_is_refused(groupwise: Run, task_set: str, tmp_path: Path) -> None:
    path = tmp_path / task_set
    path.write_text(path.read_text().replace("identity-test-", "identity-test-f", 1), encoding="utf-8")
    for arguments in ((task_set,), ("identity", "--check", task_set)):
        ran = groupwise("tasks", *arguments)
        assert ran.status == 2
        assert ran.err == "error: p.json: its content does not match its seal, so it was changed; make it again\n"


def test_a_file_is_not_overwritten_by_another(groupwise: Run, task_set: str) -> None:
    ran = groupwise("tasks", "identity", "--out", task_set)
    assert ran.status == 2
    assert ran.err.startswith("error: p.json: a different task set file exists already")


def test_a_run_is_checked_against_what_it_was_evaluated_on(groupwise: Run, tmp_path: Path) -> None:
    run = tmp_path / "run"
    run.mkdir()
    (run / "config.toml").write_text((tmp_path / small(tmp_path)).read_text(), encoding="utf-8")
    assert groupwise("tasks", "run").out.splitlines()[1].rstrip() == line("train"), "a run without a journal"
    with Journal(run / "journal.sqlite") as journal:
        journal.write_evaluation([make_row(PART.task_set("train")[0].id)])
    ran = groupwise("tasks", "run")
    assert (ran.status, ran.out.splitlines()[-1]) == (
        0,
        " ok every task that the run was evaluated on is in its task set",
    )
    with Journal(run / "journal.sqlite") as journal:
        journal.write_evaluation([make_row(PART.task_set("test")[0].id)])
    ran = groupwise("tasks", "run")
    assert ran.status == 2
    assert "an evaluation on split 'train' (task set dddddddddddd) has 1 tasks that are not in this task set" in ran.err


def make_row(task: str) -> EvaluatedRollout:
    """A rollout that was evaluated on the train split."""
    fields = {"tags": "", "stop": "terminated", "success": 1.0, "outcome": 1.0, "steps": 1}
    return EvaluatedRollout(
        number=1, name="train", split="train", seed=0, task=task, rollout=0, task_set="d" * 64, **fields
    )  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("idntity",), "there is no env 'idntity'; did you mean 'identity'?"),
        (("identity", "--set", "length"), "'length' has no value; write --set length=VALUE"),
        (("identity", "--set", "lenght=2"), "lenght"),
        (
            ("identity", "--split", "tests"),
            "there is no split 'tests'; did you mean 'test'? Valid: test, train, validation",
        ),
        (("nowhere.toml",), "nowhere.toml: there is no such file"),
        (
            ("nowhere.json",),
            "nowhere.json: there is no such file; make it with `groupwise tasks ENV --out nowhere.json`",
        ),
        (("identity", "--check", "nowhere.json"), "nowhere.json: there is no such file"),
        ((".",), "config.toml: there is no such file; give a run file (TOML) or the folder of a run"),
    ],
)
def test_bad_input_is_one_line_and_status_2(groupwise: Run, arguments: tuple[str, ...], said: str) -> None:
    ran = groupwise("tasks", *arguments)
    assert ran.status == 2
    assert ran.err.startswith("error: ")
    assert said in ran.err
    assert ran.err.count("\n") == 1


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[env", "bad.toml: not valid TOML: "),
        ("seed = 1", "bad.toml: section [env] is missing; give it a `kind`"),
        ("[env]\nlength = 1", "bad.toml: env: the env has no `kind`."),
        ("[env]\nkind = 'idntity'", "bad.toml: env.kind: there is no env 'idntity'; did you mean 'identity'?"),
    ],
)
def test_a_run_file_that_names_no_environment(groupwise: Run, tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "bad.toml").write_text(text, encoding="utf-8")
    ran = groupwise("tasks", "bad.toml")
    assert (ran.status, ran.err.startswith(f"error: {said}")) == (2, True), ran.err


def test_a_task_set_file_says_its_fields_itself(groupwise: Run, task_set: str) -> None:
    ran = groupwise("tasks", task_set, "--set", "length=2")
    assert ran.err == "error: p.json: --set cannot change a file of task sets; remove --set\n"
