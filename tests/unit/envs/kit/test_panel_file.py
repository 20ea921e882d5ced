"""Panel files: written, read back, compared; a change of the file or of the environment is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from groupwise import FileError, Part, RecordError, Task
from groupwise.envs import SPLITS, Identity, PanelFile, panel_hash
from groupwise.envs.kit.panel import check_evaluated, panels_of

PART = Identity(num_words=4, length=1)


def test_a_file_comes_back_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "panel.json"
    made = PanelFile.of(PART)
    made.write(path)
    file = PanelFile.read(path)
    assert file == made
    assert file.part() == PART
    assert file.hashes == {split: panel_hash(PART.panel(split)) for split in SPLITS}
    assert file.tasks["test"] == tuple(task.id for task in PART.panel("test"))
    file.check(PART, name="panel.json")
    made.write(path)  # the same again changes nothing
    with pytest.raises(FileError, match="a different panel file exists already"):
        PanelFile.of(Identity(num_words=4, length=2)).write(path)


def test_an_environment_with_other_tasks_is_refused() -> None:
    made, other = PanelFile.of(PART), Identity(num_words=5, length=1)
    with pytest.raises(RecordError) as raised:
        made.check(other, name="panel.json")
    now = PanelFile.of(other)
    before, after = set(made.tasks["train"]), set(now.tasks["train"])
    assert str(raised.value) == (
        f"panel.json: the train panel changed: {len(before - after)} of its {len(before)} tasks are gone and "
        f"{len(after - before)} are new ({made.hashes['train'][:12]} is now {now.hashes['train'][:12]}); results on "
        "the two are not comparable; restore the fields and data that made it, or make the file again"
    )


def test_fields_that_do_not_change_the_tasks_change_nothing() -> None:
    PanelFile.of(PART).check(Identity(num_words=4, length=1, max_steps=5), name="panel.json")


def _rename(content: dict[str, Any]) -> None:
    content["panels"]["test"]["tasks"][0] = "identity-test-0000000000000000"


def _rehash(content: dict[str, Any]) -> None:
    content["panels"]["test"]["hash"] = "0" * 64


def _move(content: dict[str, Any]) -> None:
    content["panels"]["train"]["tasks"].append(content["panels"]["test"]["tasks"][0])


def _widen(content: dict[str, Any]) -> None:
    content["env"]["num_words"] = 5


@pytest.mark.parametrize("change", [_rename, _rehash, _move, _widen])
def test_a_file_that_was_changed_is_refused(tmp_path: Path, change: Any) -> None:
    path = tmp_path / "panel.json"
    PanelFile.of(PART).write(path)
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content), encoding="utf-8")
    with pytest.raises(FileError) as raised:
        PanelFile.read(path)
    assert str(raised.value) == f"{path}: its content does not match its seal, so it was changed; make it again"


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"env": {}, "panels": {"train": 3}}', '{"env": 1, "panels": null}'])
def test_another_file_is_none(tmp_path: Path, text: str) -> None:
    path = tmp_path / "panel.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(FileError, match="not a panel file"):
        PanelFile.read(path)


def test_a_file_of_a_later_version_says_so(tmp_path: Path) -> None:
    path = tmp_path / "panel.json"
    PanelFile.of(PART).write(path)
    path.write_text(path.read_text().replace('"schema": 1', '"schema": 2'), encoding="utf-8")
    with pytest.raises(FileError) as raised:
        PanelFile.read(path)
    assert str(raised.value) == f"{path}: it has schema 2, but this version reads schema 1; make it again"


class Leaky(Part, slot="env"):
    """Tests on what it trained on."""

    def panel(self, split: str) -> tuple[Task, ...]:
        return (Task.create(env="leaky", split=split, payload={"number": 1 if split == "validation" else 0}),)


def test_panels_that_share_a_task_are_refused() -> None:
    with pytest.raises(RecordError, match="an instance may be in one split only"):
        panels_of(Leaky())


def test_evaluated_tasks_must_be_of_the_panel_they_name() -> None:
    ids = {task.id for task in PART.panel("test")}
    check_evaluated(PART, split="test", tasks=ids, digest="d" * 64)
    with pytest.raises(RecordError, match=r"has 1 tasks that are not in this panel, such as elsewhere-1"):
        check_evaluated(PART, split="test", tasks=ids | {"elsewhere-1"}, digest="d" * 64)
    with pytest.raises(RecordError, match="an evaluation on split 'train'"):
        check_evaluated(PART, split="train", tasks=ids, digest="d" * 64)
