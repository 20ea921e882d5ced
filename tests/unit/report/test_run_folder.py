"""Opening a run's folder: what is there, what is not, and never a byte changed."""

from __future__ import annotations

import math
import os
import sqlite3
from pathlib import Path

import pytest

from groupwise import ConfigError, FileError, methods
from groupwise.store.journal import Journal, Update
from groupwise.training.run_reader import RunFolder
from tests.read_only_folders import read_only
from tests.unit.report.run_folders import ENV, write_run

GIVE = "give the folder that `groupwise train --out FOLDER` wrote"


def test_a_folder_has_its_settings_its_metrics_and_its_updates(run: RunFolder) -> None:
    assert run.name == "home"
    assert run.read_algorithm() == methods.hgpo()
    assert run.find_env() == ENV
    assert run.setting("evaluation.tasks") == 40
    assert run.setting("model.kind.of.nothing") is None
    assert run.updates == [1, 2, 3, 4, 5, 6]
    assert run.metrics["seconds/advantages"] == dict.fromkeys(range(1, 7), 0.02)
    assert len(run.journal.rollouts()) == 6 * 4 * 4


@pytest.mark.parametrize(
    ("made_by", "name"),
    [
        ({"method": "hgpo"}, "hgpo"),
        ({"method": "hgpo", "depth": 4, "loss": {"old": "engine"}}, "hgpo (depth 4, loss.old engine)"),
        ({"method": "grpo", "filters": [{"kind": "zero_spread"}]}, "grpo (filters[0].kind zero_spread)"),
        ({"method": "hgpo", "depth": 4, "gamma": 0.5, "alpha": 3, "scale": "none"}, "hgpo (4 settings of its own)"),
        ({}, "own parts"),
        ("hgpo", "own parts"),
        ({"method": "\x1b[2J" + "x" * 100}, "\\x1b[2J" + "x" * 72 + "…"),
    ],
)
def test_a_run_is_called_by_the_method_that_it_was_made_by(tmp_path: Path, made_by: object, name: str) -> None:
    with RunFolder(write_run(tmp_path / "run", updates=0, made_by=made_by)) as run:
        assert run.describe_method() == name


def test_an_algorithm_that_was_written_part_by_part_has_no_methods_name(tmp_path: Path) -> None:
    with RunFolder(write_run(tmp_path / "run", updates=0, algorithm=methods.grpo())) as run:
        assert run.find_method() == ("own parts", "")
    (tmp_path / "run" / "config.toml").write_text("")
    with RunFolder(tmp_path / "run") as run:
        assert run.find_method() == ("a run", "")


def test_numbers_that_are_none_are_left_out(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", updates=0)
    with Journal(folder / "journal.sqlite") as journal:
        for number, loss in enumerate((math.nan, 1.5, math.inf), start=1):
            journal.write(Update(number=number, version=number, metrics={"loss/total": loss}))
    with RunFolder(folder) as run:
        assert run.metrics == {"loss/total": {2: 1.5}}
        assert run.updates == [1, 2, 3]


def test_what_is_no_run_is_refused_with_what_to_give_instead(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    (tmp_path / "empty").mkdir()
    for name in ("b", "a"):
        write_run(tmp_path / "runs" / name, updates=0)
    expected = {
        "nothing": "there is no such folder",
        "file": "not a folder",
        "empty": "not the folder of a run: it has no journal.sqlite",
        "runs": "holds runs, but is not a run folder (a, b)",
    }
    for name, text in expected.items():
        with pytest.raises(FileError) as caught:
            RunFolder(tmp_path / name)
        assert str(caught.value) == f"{tmp_path / name}: {text}; {GIVE}"


def test_a_corrupt_journal_and_corrupt_settings_are_named(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", updates=0)
    (folder / "config.toml").write_text("seed = = 1")
    with pytest.raises(FileError, match=r"config\.toml: not valid TOML: .*; give the folder that"):
        RunFolder(folder)
    (folder / "config.toml").write_text("")
    (folder / "journal.sqlite").write_text("no database at all, and long enough to be taken for one" * 20)
    with pytest.raises(FileError) as caught:
        RunFolder(folder)
    path = folder / "journal.sqlite"
    assert str(caught.value) == f"{path}: not a journal: file is not a database; give the folder of a run"


def test_settings_that_cannot_be_decoded_cost_only_what_needs_them(tmp_path: Path) -> None:
    elsewhere = {"kind": "a_package_that_is_not_there.worlds:World"}
    folder = write_run(tmp_path / "run", updates=1, tasks=1, rollouts=2, env=elsewhere)
    with RunFolder(folder) as run:
        assert run.find_env() is None
        assert run.read_algorithm() == methods.hgpo()
    (folder / "config.toml").write_text('[algorithm]\nadvantage = { kind = "no_such_estimator" }\n')
    with RunFolder(folder) as run:
        assert run.find_algorithm() is None
        with pytest.raises(ConfigError, match="there is no estimator 'no_such_estimator'"):
            run.read_algorithm()
    (folder / "config.toml").unlink()
    with RunFolder(folder) as run:
        assert run.settings == {}
        assert run.find_algorithm() is None
        with pytest.raises(ConfigError) as caught:
            run.read_algorithm()
    assert str(caught.value) == f"{folder / 'config.toml'}: there is no section [algorithm]; {GIVE}"


def test_a_reader_sees_the_journal_as_it_was_while_the_run_goes_on(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", updates=0)
    with Journal(folder / "journal.sqlite") as writer:
        writer.write(Update(number=1, version=1, metrics={"loss/total": 1.0}))
        with RunFolder(folder) as reader:
            writer.write(Update(number=2, version=2, metrics={"loss/total": 2.0}))
            assert reader.updates == [1]
            assert reader.journal.last_number() == 1
        with RunFolder(folder) as later:
            assert later.metrics["loss/total"] == {1: 1.0, 2: 2.0}


def test_a_reader_cannot_write(run: RunFolder) -> None:
    with pytest.raises(sqlite3.OperationalError, match="readonly"):
        run.journal._database.execute("DELETE FROM updates")


def test_a_folder_that_is_read_only_can_be_read(tmp_path: Path) -> None:
    source = write_run(tmp_path / "run", updates=2, tasks=1, rollouts=2)
    with read_only(source) as copy:
        assert not os.access(copy, os.W_OK, effective_ids=True)
        with RunFolder(copy) as run:
            assert run.updates == [1, 2]
            assert len(run.journal.rollouts()) == 4
        assert sorted(path.name for path in copy.iterdir()) == ["config.toml", "journal.sqlite"]


def test_a_read_only_copy_that_hides_its_last_updates_is_refused(tmp_path: Path) -> None:
    source = tmp_path / "run"
    source.mkdir()
    (source / "config.toml").write_text("")
    with Journal(source / "journal.sqlite") as writer:
        writer.write(Update(number=1, version=1, metrics={}))
        (source / "journal.sqlite-shm").unlink()  # as in a copy that took the log and not the index
        with read_only(source) as copy, pytest.raises(FileError) as caught:
            RunFolder(copy)
    assert str(caught.value) == (
        f"{copy / 'journal.sqlite'}: its last updates are in journal.sqlite-wal, which cannot be read in a read-only "
        "folder; copy the folder to a place where you can write, and open the copy"
    )
