"""TaskSet files: written, read back, compared; a change of the file or of the environment is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from groupwise import FileError, Part, RecordError, Task
from groupwise.envs import SPLITS, Identity, TaskSetFile, task_set_hash
from groupwise.envs.kit.task_set import check_evaluated, task_sets_of

PART = Identity(num_words=4, length=1)


def test_a_file_comes_back_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "task_set.json"
    made = TaskSetFile.of(PART)
    made.write(path)
    file = TaskSetFile.read(path)
    assert file == made
    assert file.part() == PART
    assert file.hashes == {split: task_set_hash(PART.task_set(split)) for split in SPLITS}
    assert file.tasks["test"] == tuple(task.id for task in PART.task_set("test"))
    file.check(PART, name="task_set.json")
    made.write(path)  # the same again changes nothing
    with pytest.raises(FileError, match="a different task set file exists already"):
        TaskSetFile.of(Identity(num_words=4, length=2)).write(path)


def test_an_environment_with_other_tasks_is_refused() -> None:
    made, other = TaskSetFile.of(PART), Identity(num_words=5, length=1)
    with pytest.raises(RecordError) as raised:
        made.check(other, name="task_set.json")
    now = TaskSetFile.of(other)
    before, after = set(made.tasks["train"]), set(now.tasks["train"])
    assert str(raised.value) == (
        f"task_set.json: the train task set changed: {len(before - after)} of its {len(before)} tasks are gone and "
        f"{len(after - before)} are new ({made.hashes['train'][:12]} is now {now.hashes['train'][:12]}). Results on "
        "the two are not comparable. Restore the fields and data that made it, or make the file again"
    )


def test_fields_that_do_not_change_the_tasks_change_nothing() -> None:
    TaskSetFile.of(PART).check(Identity(num_words=4, length=1, max_steps=5), name="task_set.json")


def _rename(content: dict[str, Any]) -> None:
    content["task_sets"]["test"]["tasks"][0] = "identity-test-0000000000000000"


def _rehash(content: dict[str, Any]) -> None:
    content["task_sets"]["test"]["hash"] = "0" * 64


def _move(content: dict[str, Any]) -> None:
    content["task_sets"]["train"]["tasks"].append(content["task_sets"]["test"]["tasks"][0])


def _widen(content: dict[str, Any]) -> None:
    content["env"]["num_words"] = 5


@pytest.mark.parametrize("change", [_rename, _rehash, _move, _widen])
def test_a_file_that_was_changed_is_refused(tmp_path: Path, change: Any) -> None:
    path = tmp_path / "task_set.json"
    TaskSetFile.of(PART).write(path)
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content), encoding="utf-8")
    with pytest.raises(FileError) as raised:
        TaskSetFile.read(path)
    assert str(raised.value) == f"{path}: its content does not match its seal, so it was changed; make it again"


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"env": {}, "task_sets": {"train": 3}}', '{"env": 1, "task_sets": null}']
)
def test_another_file_is_none(tmp_path: Path, text: str) -> None:
    path = tmp_path / "task_set.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(FileError, match="not a task set file"):
        TaskSetFile.read(path)


def test_a_file_of_a_later_version_says_so(tmp_path: Path) -> None:
    path = tmp_path / "task_set.json"
    TaskSetFile.of(PART).write(path)
    path.write_text(path.read_text().replace('"schema": 2', '"schema": 1'), encoding="utf-8")
    with pytest.raises(FileError) as raised:
        TaskSetFile.read(path)
    assert str(raised.value) == f"{path}: it has schema 1, but this version reads schema 2; make it again"


class Leaky(Part, slot="env"):
    """Tests on what it trained on."""

    def task_set(self, split: str) -> tuple[Task, ...]:
        return (Task.create(env="leaky", split=split, payload={"number": 1 if split == "validation" else 0}),)


def test_task_sets_that_share_a_task_are_refused() -> None:
    with pytest.raises(RecordError, match="an instance may be in one split only"):
        task_sets_of(Leaky())


def test_evaluated_tasks_must_be_of_the_task_set_they_name() -> None:
    ids = {task.id for task in PART.task_set("test")}
    check_evaluated(PART, split="test", tasks=ids, digest="d" * 64)
    with pytest.raises(RecordError, match=r"has 1 tasks that are not in this task set, such as elsewhere-1"):
        check_evaluated(PART, split="test", tasks=ids | {"elsewhere-1"}, digest="d" * 64)
    with pytest.raises(RecordError, match="an evaluation on split 'train'"):
        check_evaluated(PART, split="train", tasks=ids, digest="d" * 64)
