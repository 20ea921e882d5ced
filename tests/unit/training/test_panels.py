"""A run's panels: named by their hashes, and held to the panel file where there is one."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("torch")

from groupwise import FileError, RecordError
from groupwise.envs import Boxes, Identity, PanelFile, panel_hash
from groupwise.store.journal import Journal
from groupwise.training.config.run_config import EvaluationConfig, RunConfig
from groupwise.training.loop import train as run_loop
from groupwise.training.open_run import open_run
from tests.unit.training.runs import small_config

ENV = Identity(num_words=4, length=1)


def config(path: Path, **changes: object) -> RunConfig:
    return small_config().model_copy(update={"env": ENV, "panel": str(path), **changes})


def never(**_: object) -> None:
    raise AssertionError("a model was loaded")


def refusal(config: RunConfig, folder: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """What a run is refused with, before a model loads and a folder is made."""
    monkeypatch.setattr(type(config.model), "open", never)
    with pytest.raises((RecordError, FileError)) as raised:
        open_run(config, folder)
    assert not folder.exists()
    return str(raised.value)


def test_a_run_names_the_panels_it_trains_and_is_evaluated_on(tmp_path: Path) -> None:
    PanelFile.of(ENV).write(tmp_path / "panel.json")
    test = config(tmp_path / "panel.json", evaluation=EvaluationConfig(split="test", tasks=1))
    whole = {split: panel_hash(ENV.panel(split)) for split in ("train", "test")}
    with open_run(test, tmp_path / "run") as run:
        assert run.panels == whole
        assert run.journal.panels() == {}, "no run has begun"
        run_loop(run)
    with Journal(tmp_path / "run" / "journal.sqlite", read_only=True) as journal:
        assert journal.panels() == whole
    without = test.model_copy(update={"evaluation": EvaluationConfig(split="test", tasks=0)})
    with open_run(without, tmp_path / "other") as run:
        assert run.panels == {"train": whole["train"]}


def test_what_a_run_named_first_stays(tmp_path: Path) -> None:
    with Journal(tmp_path / "journal.sqlite") as journal:
        journal.name_panels({"train": "a"})
        journal.name_panels({"train": "b", "test": "c"})
        assert journal.panels() == {"test": "c", "train": "a"}


def test_tasks_other_than_those_of_the_file_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, other = tmp_path / "panel.json", Identity(num_words=5, length=1)
    PanelFile.of(other).write(path)
    before, after = ({task.id for task in part.panel("train")} for part in (other, ENV))
    assert refusal(config(path), tmp_path / "run", monkeypatch) == (
        f"{path}: the train panel changed: {len(before - after)} of its {len(before)} tasks are gone and "
        f"{len(after - before)} are new ({panel_hash(other.panel('train'))[:12]} is now "
        f"{panel_hash(ENV.panel('train'))[:12]}); results on the two are not comparable; restore the fields and "
        "data that made it, or make the file again"
    )


def test_a_file_that_is_not_there_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "panel.json"
    assert refusal(config(path), tmp_path / "run", monkeypatch) == (
        f"{path}: there is no such file; make it with `groupwise panel ENV --out {path}`"
    )


def test_a_file_that_was_changed_by_hand_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "panel.json"
    PanelFile.of(ENV).write(path)
    path.write_text(path.read_text().replace("identity-test-", "identity-best-", 1))
    assert refusal(config(path), tmp_path / "run", monkeypatch) == (
        f"{path}: its content does not match its seal, so it was changed; make it again"
    )


def test_a_file_of_another_environment_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "panel.json"
    PanelFile.of(Boxes()).write(path)
    assert refusal(config(path), tmp_path / "run", monkeypatch) == (
        f"{path}: it has the panels of the environment 'boxes', not of 'identity'; give the panel file of this "
        "environment, or make one with `groupwise panel ENV --out FILE`"
    )
