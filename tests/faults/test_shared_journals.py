"""Journals in folders that several machines see: without the log that only processes of one machine can share."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from groupwise.store import lock as run_lease
from groupwise.store.journal import Journal, Update
from groupwise.store.run_folder import RunPaths
from groupwise.system import files as file_system
from groupwise.system.errors import FileError, TrainingError
from groupwise.training.loop import train
from groupwise.training.open_run import open_run
from tests.faults.shared_folders import ROOT, list_mounts
from tests.unit.training.runs import small_config

KILLED = """
import os, signal, sys
from pathlib import Path
from groupwise.system import files as file_system
from groupwise.store.journal_file import connect
file_system.MOUNTS = Path(sys.argv[2])
database = connect(Path(sys.argv[1]))
database.execute("PRAGMA cache_size = 1")  # so that pages are written before the transaction ends
database.execute("BEGIN IMMEDIATE")
for number in range(1, 400):
    database.execute("INSERT INTO metrics VALUES (?, ?, 0.5)", (9, f"{number:01000d}"))
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture
def mounts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(run_lease, "SETTLE_SECONDS", 0.0)
    path = list_mounts(tmp_path / "mountinfo")
    monkeypatch.setattr(file_system, "MOUNTS", path)
    return path


def read_mode(journal: Journal) -> str:
    return str(journal._database.execute("PRAGMA journal_mode").fetchone()[0])


def play(folder: Path, updates: int, *, resume: bool = False) -> None:
    with open_run(small_config(updates=updates), folder) as run:
        train(run, resume=resume)


def read_digest(folder: Path) -> str:
    with Journal(RunPaths(folder).journal, read_only=True) as journal:
        return journal.digest()


def test_a_run_is_the_same_there_and_goes_on_elsewhere(tmp_path: Path, mounts: Path) -> None:
    folder = tmp_path / "shared"
    play(folder, 2)
    with Journal(RunPaths(folder).journal, read_only=True) as journal:
        assert read_mode(journal) == "delete"
    assert sorted(path.name for path in folder.glob("journal*")) == ["journal.sqlite"]
    list_mounts(mounts, "ext4")
    play(tmp_path / "local", 2)
    with Journal(RunPaths(tmp_path / "local").journal, read_only=True) as journal:
        assert read_mode(journal) == "wal"
    assert read_digest(folder) == read_digest(tmp_path / "local")
    play(folder, 3, resume=True)  # copied to a disk of one machine's own
    list_mounts(mounts, "nfs4")
    play(tmp_path / "local", 3, resume=True)
    assert read_digest(folder) == read_digest(tmp_path / "local")


@pytest.mark.usefixtures("mounts")
def test_a_reader_keeps_no_writer_waiting_and_sees_what_is_new(tmp_path: Path) -> None:
    path = tmp_path / "journal.sqlite"
    with Journal(path) as writer:
        writer.write(Update(number=1, version=1, metrics={"success": 0.5}))
        with Journal(path, read_only=True) as reader:
            assert reader.last_number() == 1
            writer.write(Update(number=2, version=2, metrics={"success": 0.75}))
            assert reader.last_number() == 2


def test_an_update_that_was_cut_off_is_named_and_taken_back(tmp_path: Path, mounts: Path) -> None:
    path = tmp_path / "journal.sqlite"
    with Journal(path) as journal:
        journal.write(Update(number=1, version=1, metrics={"success": 0.5}))
    env = os.environ | {"PYTHONPATH": str(ROOT / "src")}
    subprocess.run([sys.executable, "-c", KILLED, str(path), str(mounts)], env=env, check=False)
    with pytest.raises(FileError) as caught:
        Journal(path, read_only=True)
    assert str(caught.value) == (
        f"{path}: the run was killed while it wrote an update, and journal.sqlite-journal holds the previous "
        "content; `groupwise train --resume` restores it and resumes the run"
    )
    with Journal(path) as journal:
        assert journal.last_number() == 1
        assert journal.find_damage() is None
    with Journal(path, read_only=True) as journal:
        assert journal.check_digest_chain().fault is None


@pytest.mark.usefixtures("mounts")
def test_a_run_whose_folder_was_taken_over_writes_nothing_more(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    with open_run(small_config(updates=2), folder) as run:
        lease = run.lock._lease
        assert lease is not None
        lease._lost_to = "process 7 on node2"
        with pytest.raises(
            TrainingError, match="was taken over by process 7 on node2 while this process was suspended"
        ):
            train(run)
    with Journal(RunPaths(folder).journal, read_only=True) as journal:
        assert journal.last_number() <= 0
