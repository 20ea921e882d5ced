"""One writer also where machines share a folder, whether the file system's locks reach that far or not."""

from __future__ import annotations

import errno
import json
import os
import signal
import time
from pathlib import Path

import pytest

from groupwise.store import lock as run_lease
from groupwise.store.lock import RunLock
from groupwise.store.run_folder import LOCK
from groupwise.system import files as file_system
from groupwise.system.errors import TrainingError
from tests.faults.shared_folders import go_on, hear, list_mounts, writer


@pytest.fixture
def mounts(tmp_path: Path) -> Path:
    return list_mounts(tmp_path / "mountinfo")


def test_a_second_process_on_another_machine_is_refused_where_locks_do_not_reach_it(
    tmp_path: Path, mounts: Path
) -> None:
    folder = tmp_path / "run"
    with writer(folder, mounts, "node1") as first, writer(folder, mounts, "node2") as second:
        go_on(first)
        assert hear(first) == "held"
        go_on(second)
        message = hear(second)
        holder = json.loads((folder / LOCK).read_text())
        assert message == (
            f"{folder} is being written by process {first.pid} on node1 (`groupwise train`, since {holder['since']}); "
            "wait until that ends, end it, or choose another folder"
        )
        go_on(first)
        assert hear(first) == "still held", "whoever is refused takes nothing away"
        first.wait()
    assert list(folder.iterdir()) == []


def test_of_two_that_start_at_the_same_moment_one_goes_on(tmp_path: Path, mounts: Path) -> None:
    folder = tmp_path / "run"
    with writer(folder, mounts, "node1") as first, writer(folder, mounts, "node2") as second:
        go_on(first)
        go_on(second)
        said = [hear(first), hear(second)]
        assert sorted(words == "held" for words in said) == [False, True]
        assert any(" is being written by process " in words for words in said)


def test_a_holder_that_died_on_another_machine_is_followed_once_its_count_stands_still(
    tmp_path: Path, mounts: Path
) -> None:
    folder = tmp_path / "run"
    with writer(folder, mounts, "node1") as first, writer(folder, mounts, "node2") as second:
        go_on(first)
        assert hear(first) == "held"
        first.kill()
        first.wait()
        before = time.monotonic()
        go_on(second)
        assert hear(second) == "held"
        assert time.monotonic() - before >= 2.0


def test_a_holder_that_died_on_this_machine_holds_nobody_up(
    tmp_path: Path, mounts: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "run"
    with writer(folder, mounts) as first:
        go_on(first)
        assert hear(first) == "held"
        first.kill()
        first.wait()
    monkeypatch.setattr(file_system, "MOUNTS", mounts)
    monkeypatch.setattr(run_lease, "SETTLE_SECONDS", 0.0)
    monkeypatch.setattr(run_lease.time, "sleep", lambda seconds: pytest.fail("it waits") if seconds else None)
    lock = RunLock(folder)
    lock.acquire()
    assert json.loads((folder / LOCK).read_text())["pid"] == os.getpid()
    lock.release()
    assert list(folder.iterdir()) == []


def test_a_number_that_another_process_has_by_now_is_not_its_holder() -> None:
    here = run_lease.describe_self()
    assert None not in here.values(), "Linux says all of it"
    assert not run_lease._is_gone(json.dumps(here).encode())
    assert run_lease._is_gone(json.dumps(here | {"started": here["started"] - 1}).encode())
    assert not run_lease._is_gone(json.dumps(here | {"started": 0, "machine": "another"}).encode())
    assert not run_lease._is_gone(json.dumps(here | {"started": 0, "machine": None}).encode())
    assert [run_lease._is_gone(content) for content in (b"{", b"[]", b'{"pid": 1}')] == [False] * 3


def test_a_holder_that_stood_still_learns_that_it_was_followed_and_leaves_the_folder_alone(
    tmp_path: Path, mounts: Path
) -> None:
    folder = tmp_path / "run"
    with writer(folder, mounts, "node1") as first, writer(folder, mounts, "node2") as second:
        go_on(first)
        assert hear(first) == "held"
        first.send_signal(signal.SIGSTOP)
        go_on(second)
        assert hear(second) == "held"
        first.send_signal(signal.SIGCONT)
        go_on(first)
        assert hear(first).startswith(f"{folder} was taken over by process {second.pid} on node2 (`groupwise train`")
        first.wait()
        assert json.loads((folder / LOCK).read_text())["pid"] == second.pid
        go_on(second)
        assert hear(second) == "still held"


@pytest.fixture
def leased(tmp_path: Path, mounts: Path, monkeypatch: pytest.MonkeyPatch) -> RunLock:
    """A lock that is held by a lease, whose thread does not count within a test."""
    monkeypatch.setattr(file_system, "MOUNTS", mounts)
    monkeypatch.setattr(run_lease, "SETTLE_SECONDS", 0.0)
    lock = RunLock(tmp_path / "run")
    lock.acquire()
    return lock


@pytest.fixture
def overtaken(leased: RunLock) -> RunLock:
    """A lock that another machine has taken over, before its own thread has counted again."""
    taker = {"pid": 7, "host": "node2", "since": "today", "command": "groupwise train", "token": "another"}
    (leased.folder / LOCK).write_text(json.dumps(taker))
    return leased


def test_a_holder_looks_for_itself_whether_it_was_followed(overtaken: RunLock) -> None:
    with pytest.raises(TrainingError, match="was taken over by process 7 on node2 "):
        overtaken.check()
    (overtaken.folder / LOCK).unlink()  # whoever followed has ended
    with pytest.raises(TrainingError, match="was taken over by process 7 on node2 "):
        overtaken.check()
    overtaken.release()


def test_a_holder_that_was_followed_and_fails_removes_nothing(overtaken: RunLock) -> None:
    (overtaken.folder / "journal.sqlite").write_text("of another machine")
    with pytest.raises(ValueError, match="it fails"), overtaken.release_on_failure():
        raise ValueError("it fails")
    assert not overtaken.is_held
    assert json.loads((overtaken.folder / LOCK).read_text())["pid"] == 7
    assert (overtaken.folder / "journal.sqlite").read_text() == "of another machine"


def test_a_holder_that_was_followed_by_one_that_has_ended_by_now_stops(leased: RunLock) -> None:
    """Whoever followed has removed the file at its end, before this process looked at it again."""
    (leased.folder / "journal.sqlite").write_text("of another machine")
    (leased.folder / LOCK).unlink()
    with pytest.raises(TrainingError) as caught:
        leased.check()
    assert str(caught.value) == (
        f"{leased.folder} was taken over by another process that has ended since ({LOCK} is gone) while this process "
        "was suspended; this process stops, and writes nothing more"
    )
    with pytest.raises(ValueError, match="it fails"), leased.release_on_failure():
        raise ValueError("it fails")
    assert (leased.folder / "journal.sqlite").read_text() == "of another machine"


def test_a_file_that_cannot_be_read_for_a_moment_is_not_lost(leased: RunLock, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> int:
        raise OSError(errno.ESTALE, "stale file handle")

    with monkeypatch.context() as patch:
        patch.setattr(run_lease.os, "open", fail)
        leased.check()
    leased.check()
    leased.release()
    assert list(leased.folder.iterdir()) == []


def test_a_holder_with_a_lease_that_fails_leaves_no_folder_behind(leased: RunLock) -> None:
    with pytest.raises(ValueError, match="it fails"), leased.release_on_failure():
        raise ValueError("it fails")
    assert not leased.folder.exists()


def test_a_file_that_is_nested_deeply_names_nobody() -> None:
    content = b"[" * run_lease.MAX_LOCK_BYTES
    assert run_lease.name_holder(content) == "another process"
    assert not run_lease._is_gone(content)


def test_a_holder_that_is_watched_is_said_in_one_sentence(
    tmp_path: Path, mounts: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(file_system, "MOUNTS", mounts)
    monkeypatch.setattr(run_lease, "WATCH_SECONDS", 0.1)
    monkeypatch.setattr(run_lease, "SETTLE_SECONDS", 0.0)
    left = {"pid": 7, "host": "node1", "since": "yesterday", "command": "groupwise train", "machine": "x", "started": 1}
    (tmp_path / LOCK).write_text(json.dumps(left) + " " * 500)
    lock = RunLock(tmp_path)
    lock.acquire()
    assert caplog.messages == [
        f"{tmp_path / LOCK} names process 7 on node1 (`groupwise train`, since yesterday), which may run on another "
        "machine; checking for up to 0.1 seconds whether it still runs"
    ]
    assert json.loads((tmp_path / LOCK).read_text())["pid"] == os.getpid()
    lock.release()
    assert not (tmp_path / LOCK).exists()


@pytest.mark.parametrize("kind", ["ext4", "xfs", "overlay"])
def test_a_folder_of_one_machine_needs_no_lease(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    monkeypatch.setattr(file_system, "MOUNTS", list_mounts(tmp_path / "mountinfo", kind))
    monkeypatch.setattr(run_lease.RunLease, "take", lambda self: pytest.fail("a lease is taken"))
    lock = RunLock(tmp_path / "run")
    lock.acquire()
    lock.check()
    lock.release()


def test_a_lock_that_is_held_here_is_refused_at_once_on_a_shared_folder_too(
    tmp_path: Path, mounts: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_system, "MOUNTS", mounts)
    with writer(tmp_path / "run", mounts) as first:
        go_on(first)
        assert hear(first) == "held"
        with pytest.raises(TrainingError, match=f"is being written by process {first.pid} on "):
            RunLock(tmp_path / "run").acquire()
