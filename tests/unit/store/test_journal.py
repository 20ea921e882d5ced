"""The journal: whole updates, or none."""

from __future__ import annotations

import sqlite3
from dataclasses import replace
from pathlib import Path

import pytest

from groupwise import FileError, StopReason
from groupwise.store.journal import Journal, Update
from tests.unit.store.journal_updates import TASK, trajectory, update


def test_what_was_written_comes_back(tmp_path: Path) -> None:
    with Journal(tmp_path / "journal.sqlite") as journal:
        assert journal.last_number() == -1
        journal.write(update(1))
        journal.write(update(2))
    with Journal(tmp_path / "journal.sqlite") as journal:
        assert journal.last_number() == 2
        assert journal.metric_names() == ["loss/total", "rollout/success"]
        assert journal.curve("rollout/success") == [(1, 0.1), (2, 0.2)]
        first, second = journal.trajectories(2)
        assert (first["rollout"], first["outcome"], first["success"], first["stop"]) == (0, 1.0, 1.0, "terminated")
        assert first["credit"] == [0.5, 0.25]
        assert [row["state"] for row in first["steps"]] == ["s0", "s1"]
        assert [row["response_ids"] for row in first["steps"]] == [[3], [3]]
        assert (second["rollout"], second["credit"]) == (1, [-0.75])


def test_an_update_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    with Journal(tmp_path / "journal.sqlite") as journal:
        journal.write(update(1))
        twice = Update(
            number=2,
            version=2,
            metrics={},
            trajectories=[trajectory(0, 1.0), trajectory(0, 1.0)],
            credit=[[0.0], [0.0]],
        )
        with pytest.raises(sqlite3.IntegrityError):
            journal.write(twice)
        assert journal.last_number() == 1
        assert list(journal.trajectories(2)) == []


def test_what_came_after_an_update_can_be_forgotten(tmp_path: Path) -> None:
    with Journal(tmp_path / "journal.sqlite") as journal:
        for number in (1, 2, 3):
            journal.write(update(number))
        journal.forget_after(1)
        assert journal.last_number() == 1
        assert journal.curve("loss/total") == [(1, 0.5)]
        assert list(journal.trajectories(3)) == []


def test_a_file_that_is_no_journal_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "journal.sqlite"
    path.write_text("this is not a database, and long enough to be taken for one" * 20)
    with pytest.raises(FileError) as caught:
        Journal(path)
    assert str(caught.value) == f"{path}: not a journal: file is not a database; give the folder of a run"


def test_a_journal_of_another_schema_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "journal.sqlite"
    database = sqlite3.connect(path)
    database.execute("CREATE TABLE about (key TEXT PRIMARY KEY, value TEXT NOT NULL)")
    database.execute("INSERT INTO about VALUES ('schema', '99')")
    database.commit()
    database.close()
    before = path.read_bytes()
    with pytest.raises(FileError) as caught:
        Journal(path)
    assert str(caught.value) == (
        f"{path}: the journal has schema 99, this version reads 2; use the version that wrote it"
    )
    assert path.read_bytes() == before


def test_rollouts_that_a_fault_ended_are_named_and_forgotten_with_their_update(tmp_path: Path) -> None:
    failed = replace(trajectory(2, 0.0), stop=StopReason.TIMEOUT, error="no answer within 0.3 s")
    with Journal(tmp_path / "journal.sqlite") as journal:
        journal.write(replace(update(1), faults=[failed]))
        assert journal.faults(1) == [
            {"task": TASK.id, "rollout": 2, "stop": "timeout", "steps": 1, "error": "no answer within 0.3 s"}
        ]
        assert len(list(journal.trajectories(1))) == 2, "they take part in nothing"
        journal.forget_after(0)
        assert journal.faults(1) == []
