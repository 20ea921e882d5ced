"""Data sets of the package `datasets`: saved folders and names; without the package, a sentence."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from groupwise import ConfigError, FileError
from groupwise.envs import DataSet
from tests.unit.envs.row_sets import sums

SETTINGS: dict[str, Any] = {"columns": {"prompt": "question"}, "answer_after": "####", "verifier": "number"}


class StandIn(SimpleNamespace):
    """What is called of the package: two functions that load, from what the test put there."""

    calls: list[tuple[Any, ...]]
    content: Any

    def load_dataset(self, name: str, subset: str | None, *, revision: str | None) -> Any:
        self.calls.append((name, subset, revision))
        if isinstance(self.content, Exception):
            raise self.content
        return self.content

    def load_from_disk(self, path: str) -> Any:
        self.calls.append((path,))
        return self.content


@pytest.fixture
def package(monkeypatch: pytest.MonkeyPatch) -> StandIn:
    stand_in = StandIn(calls=[], content={"train": sums(0, 30), "test": sums(100, 3)})
    monkeypatch.setitem(sys.modules, "datasets", stand_in)  # type: ignore[arg-type]
    return stand_in


def test_a_name_on_the_hub_has_its_splits(package: StandIn) -> None:
    part = DataSet(path="hub:openai/gsm8k", subset="main", revision="e53f048", **SETTINGS)
    assert {task.payload["question"] for task in part.task_set("test")} == {row["question"] for row in sums(100, 3)}
    assert part.task_set("train")
    assert package.calls == [("openai/gsm8k", "main", "e53f048")]


def test_a_folder_that_was_saved_is_recognised(package: StandIn, tmp_path: Path) -> None:
    (tmp_path / "state.json").write_text("{}", encoding="utf-8")
    package.content = sums(0, 60)
    part = DataSet(path=str(tmp_path), **SETTINGS)
    assert sum(len(part.task_set(split)) for split in ("train", "validation", "test")) == 60
    assert package.calls == [(str(tmp_path),)]


def test_a_row_is_told_with_its_split(package: StandIn) -> None:
    package.content = {"train": [*sums(0, 3), {"text": "?"}]}
    with pytest.raises(FileError) as raised:
        DataSet(path="hub:a/b", **SETTINGS).task_set("train")
    assert str(raised.value).startswith("hub:a/b, train row 4: there is no column 'question' for the prompt; it has te")


def test_what_cannot_be_loaded_is_a_sentence(package: StandIn) -> None:
    package.content = ConnectionError("no way there")
    with pytest.raises(FileError) as raised:
        DataSet(path="hub:a/nowhere", **SETTINGS).task_set("train")
    assert str(raised.value) == (
        "data_set: 'hub:a/nowhere' cannot be loaded (ConnectionError: no way there); give a name on the hub, "
        "with its subset if it has several, or a folder that save_to_disk wrote"
    )


def test_without_the_package_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(ConfigError) as raised:
        DataSet(path="hub:a/c", **SETTINGS).task_set("train")
    assert str(raised.value) == (
        "data_set: 'hub:a/c' needs a package that is not installed; pip install 'groupwise[datasets]'"
    )


@pytest.mark.filterwarnings("ignore")
def test_a_real_folder_gives_the_rows_that_were_saved(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets", reason="the extra `datasets` is not installed")
    whole = datasets.Dataset.from_list(sums(0, 40))
    whole.save_to_disk(str(tmp_path / "one"))
    datasets.DatasetDict({"train": whole, "test": datasets.Dataset.from_list(sums(100, 4))}).save_to_disk(
        str(tmp_path / "two")
    )
    single, divided = (DataSet(path=str(tmp_path / name), **SETTINGS) for name in ("one", "two"))
    assert sum(len(single.task_set(split)) for split in ("train", "validation", "test")) == 40
    assert {task.payload["question"] for task in divided.task_set("test")} == {row["question"] for row in sums(100, 4)}
