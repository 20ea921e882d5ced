"""What parts remembered, in the journal: beside the update that began with it, and only where there are such parts."""

from __future__ import annotations

import hashlib
import sqlite3
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from groupwise import FileError
from groupwise.parts.stateful import StateBefore
from groupwise.store.formats import open_rollouts
from groupwise.store.journal import Journal
from groupwise.store.journal_file import LINKED, START
from tests.unit.store.journal_updates import TASK, update


def link_without_memory(database: sqlite3.Connection, number: int, previous: str) -> str:
    """The digest after an update as it was made before parts had a memory (commit 7406a5d)."""
    digest = hashlib.sha256(previous.encode())
    for query in LINKED:
        digest.update(b"\0")
        for row in database.execute(query, (number,)):
            digest.update(repr([(len(cell),) if isinstance(cell, bytes) else cell for cell in row]).encode())
            digest.update(b"".join(cell for cell in row if isinstance(cell, bytes)))
    return digest.hexdigest()


def state(value: float, path: str = "algorithm.advantage.of") -> StateBefore:
    return StateBefore(path=path, kind="mine:Part", state={"z": [value], "a": 1}, columns={"prior": {TASK.id: value}})


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A journal of two updates of a part that remembers."""
    path = tmp_path / "journal.sqlite"
    with Journal(path) as journal:
        journal.write(replace(update(1), states=[state(0.1, "b"), state(1 / 3)]))
        journal.write(replace(update(2), states=[state(0.2)]))
    return path


def test_each_update_keeps_what_it_began_with(path: Path) -> None:
    with Journal(path, read_only=True) as journal:
        assert journal.states_before(1) == [state(1 / 3), state(0.1, "b")]
        assert journal.states_before(2) == [state(0.2)]
        assert list(journal.states_before(2)[0].state) == ["z", "a"]
        assert journal.states_before(3) == []


def test_updates_that_are_forgotten_take_their_states_along(path: Path) -> None:
    with Journal(path) as journal:
        journal.forget_after(1)
        assert (journal.states_before(1), journal.states_before(2)) == ([state(1 / 3), state(0.1, "b")], [])


def test_a_journal_that_is_written_anew_keeps_them(path: Path) -> None:
    with Journal(path) as journal:
        journal.rewrite_up_to(1)
        assert journal.states_before(1) == [state(1 / 3), state(0.1, "b")]
        assert journal.check_digest_chain().fault is None


def test_a_run_without_such_parts_has_the_digests_it_had(tmp_path: Path) -> None:
    path = tmp_path / "journal.sqlite"
    with Journal(path) as journal:
        journal.write(update(1))
        journal.write(update(2))
        assert journal.states_before(1) == []
        with sqlite3.connect(path) as database:
            first = link_without_memory(database, 1, START)
            assert journal.digest() == link_without_memory(database, 2, first)


@pytest.mark.parametrize(
    "change",
    ["DELETE FROM part_states WHERE path = 'b'", "UPDATE part_states SET kind = 'x' WHERE path = 'b'"],
    ids=["deleted", "changed"],
)
def test_a_memory_that_was_changed_breaks_the_chain(path: Path, change: str) -> None:
    with Journal(path, read_only=True) as journal:
        assert journal.check_digest_chain().fault is None
    with sqlite3.connect(path) as database:
        database.execute(change)
    with Journal(path, read_only=True) as journal:
        assert journal.check_digest_chain().fault == "update 1 is not as it was written"


@pytest.mark.parametrize("column", ["state", "columns", "path"])
def test_a_forged_memory_is_a_damaged_journal(path: Path, column: str) -> None:
    with sqlite3.connect(path) as database:
        database.execute(f"UPDATE part_states SET {column} = x'00' WHERE number = 2")
    with Journal(path, read_only=True) as journal, pytest.raises(FileError, match="the journal is damaged"):
        journal.states_before(2)


def test_recorded_rollouts_of_a_run_have_the_columns_of_their_own_update(path: Path) -> None:
    with Journal(path) as journal:
        journal.forget_after(0)
        journal.write(replace(update(1), states=[state(0.25)]))
        journal.write(replace(update(2), states=[state(0.75)]))
    [part] = open_rollouts(path.parent).chunks()
    known = dict(zip(part.columns["task"], part.columns["prior"], strict=True))
    assert known == {f"{TASK.id}@1": 0.25, f"{TASK.id}@2": 0.75}
    prior = part.table().column("prior")
    assert prior.tolist() == [0.25] * 3 + [0.75] * 3
    assert prior.dtype == np.float64, "a signal may give it as it is"
