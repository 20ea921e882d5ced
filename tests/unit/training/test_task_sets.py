"""A run's task sets: named by their hashes, and held to the task set file where there is one."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("torch")

from groupwise import FileError, RecordError
from groupwise.envs import Boxes, Identity, TaskSetFile, task_set_hash
from groupwise.store.journal import Journal
from groupwise.training.config.run_config import EvaluationConfig, RunConfig
from groupwise.training.loop import train as run_loop
from groupwise.training.open_run import open_run
from tests.unit.training.runs import small_config

ENV = Identity(num_words=4, length=1)


def config(path: Path, **changes: object) -> RunConfig:
    return small_config().model_copy(update={"env": ENV, "task_set": str(path), **changes})


def never(*_: object, **__: object) -> None:
    raise AssertionError("a model was loaded")


def refusal(config: RunConfig, folder: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """What a run is refused with, before a model loads and a folder is made."""
    monkeypatch.setattr(type(config.model), "open", never)
    with pytest.raises((RecordError, FileError)) as raised:
        open_run(config, folder)
    assert not folder.exists()
    return str(raised.value)


def test_a_run_names_the_task_sets_it_trains_and_is_evaluated_on(tmp_path: Path) -> None:
    TaskSetFile.of(ENV).write(tmp_path / "task_set.json")
    test = config(tmp_path / "task_set.json", evaluation=EvaluationConfig(split="test", tasks=1))
    whole = {split: task_set_hash(ENV.task_set(split)) for split in ("train", "test")}
    with open_run(test, tmp_path / "run") as run:
        assert run.task_sets == whole
        assert run.journal.task_sets() == {}, "no run has begun"
        run_loop(run)
    with Journal(tmp_path / "run" / "journal.sqlite", read_only=True) as journal:
        assert journal.task_sets() == whole
    without = test.model_copy(update={"evaluation": EvaluationConfig(split="test", tasks=0)})
    with open_run(without, tmp_path / "other") as run:
        assert run.task_sets == {"train": whole["train"]}


def test_what_a_run_named_first_stays(tmp_path: Path) -> None:
    with Journal(tmp_path / "journal.sqlite") as journal:
        journal.name_task_sets({"train": "a"})
        journal.name_task_sets({"train": "b", "test": "c"})
        assert journal.task_sets() == {"test": "c", "train": "a"}


def test_tasks_other_than_those_of_the_file_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, other = tmp_path / "task_set.json", Identity(num_words=5, length=1)
    TaskSetFile.of(other).write(path)
    before, after = ({task.id for task in part.task_set("train")} for part in (other, ENV))
    assert refusal(config(path), tmp_path / "run", monkeypatch) == (
        f"{path}: the train task set changed: {len(before - after)} of its {len(before)} tasks are gone and "
        f"{len(after - before)} are new ({task_set_hash(other.task_set('train'))[:12]} is now "
        f"{task_set_hash(ENV.task_set('train'))[:12]}). Results on the two are not comparable. Restore the fields and "
        "data that made it, or make the file again"
    )


def test_a_file_that_is_not_there_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "task_set.json"
    assert refusal(config(path), tmp_path / "run", monkeypatch) == (
        f"{path}: there is no such file; make it with `groupwise tasks ENV --out {path}`"
    )


def test_a_file_that_was_changed_by_hand_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "task_set.json"
    TaskSetFile.of(ENV).write(path)
    path.write_text(path.read_text().replace("identity-test-", "identity-best-", 1))
    assert refusal(config(path), tmp_path / "run", monkeypatch) == (
        f"{path}: its content does not match its seal, so it was changed; make it again"
    )


def test_a_file_of_another_environment_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "task_set.json"
    TaskSetFile.of(Boxes()).write(path)
    assert refusal(config(path), tmp_path / "run", monkeypatch) == (
        f"{path}: it has the task sets of the environment 'boxes', not of 'identity'; give the task set file of this "
        "environment, or make one with `groupwise tasks ENV --out FILE`"
    )
