"""One writer a folder: whoever comes second is told who was first, and changes nothing."""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from groupwise.store import lock as run_lock
from groupwise.store.journal import Journal
from groupwise.store.lock import RunLock
from groupwise.store.run_folder import LOCK
from groupwise.system.errors import FileError, TrainingError
from groupwise.training.evaluation.evaluate import evaluate_run
from groupwise.training.loop import train
from groupwise.training.open_run import open_run
from tests.unit.cli.conftest import Run, groupwise  # noqa: F401
from tests.unit.cli.run_files import small
from tests.unit.training.runs import small_config

ROOT = Path(__file__).parents[2]
HOLDER = """
import sys, time
from pathlib import Path
from groupwise.store.lock import RunLock
sys.argv = ["/usr/bin/groupwise", "train", "secret.toml", "--set", "env.key=SECRET"]
lock = RunLock(Path(FOLDER))
lock.acquire()
print("held", flush=True)
time.sleep(60)
"""


@contextmanager
def holder(folder: Path) -> Iterator[subprocess.Popen[str]]:
    """Another process that holds the lock of a folder."""
    code = f"FOLDER = {str(folder)!r}\n{HOLDER}"
    env = os.environ | {"PYTHONPATH": str(ROOT / "src")}
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, env=env) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        try:
            yield process
        finally:
            process.kill()


def content(folder: Path) -> dict[str, bytes]:
    """Every file of a folder, but the lock."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != LOCK
    }


def test_whoever_comes_second_is_told_who_was_first(tmp_path: Path) -> None:
    with holder(tmp_path) as process:
        with pytest.raises(TrainingError) as caught:
            RunLock(tmp_path).acquire()
        said = json.loads((tmp_path / LOCK).read_text())
    assert str(caught.value) == (
        f"{tmp_path} is being written by process {process.pid} on {said['host']} (`groupwise train`, since "
        f"{said['since']}); wait until that ends, end it, or choose another folder"
    )
    assert "SECRET" not in str(said)


def test_a_holder_that_was_killed_holds_nothing(tmp_path: Path) -> None:
    with holder(tmp_path) as process:
        process.send_signal(signal.SIGKILL)
        process.wait()
        assert (tmp_path / LOCK).exists(), "it could not clear up"
        lock = RunLock(tmp_path)
        lock.acquire()
    assert json.loads((tmp_path / LOCK).read_text())["pid"] == os.getpid()
    lock.release()
    assert list(tmp_path.iterdir()) == []


ALLOWED = ("--set", "training.updates=4", "--set", "training.learner.learning_rate=1e-4")
"""What a run may go on with: nothing but the lock is in its way."""


@pytest.mark.parametrize("command", ["train", "train --resume", "evaluate", "open_run"])
def test_no_second_writer_opens_or_changes_anything(
    groupwise: Run,  # noqa: F811
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    command: str,
) -> None:
    assert groupwise("train", small(tmp_path), "--out", "run").status == 0
    before, opened = content(tmp_path / "run"), list[object]()
    with holder(tmp_path / "run"), monkeypatch.context() as watched:
        watched.setattr("groupwise.training.open_run.open_run_host", opened.append)  # the first that a run opens
        if command == "open_run":
            with pytest.raises(TrainingError, match="is being written by process"):
                open_run(small_config(), tmp_path / "run")
        else:
            name, *flags = command.split()
            given = ["run", *flags] if name == "evaluate" or flags else ["small.toml", "--out", "run"]
            ran = groupwise(name, *given, *(ALLOWED if flags else ()))
            assert ran.status == 2
            assert ran.err.splitlines()[-1].startswith("error: run ")
            assert "Traceback" not in ran.err
            assert command == "train" or " is being written by process " in ran.err
        assert content(tmp_path / "run") == before
    assert opened == []
    assert groupwise("train", "run", "--resume", *ALLOWED).status == 0, "and then it goes on"


def test_what_must_not_change_is_refused_by_name_while_somebody_writes(groupwise: Run, tmp_path: Path) -> None:  # noqa: F811
    """Waiting for the other would not help, so that the lock is not what is spoken of; nothing is touched either."""
    assert groupwise("train", small(tmp_path), "--out", "run").status == 0
    before = content(tmp_path / "run")
    with holder(tmp_path / "run"):
        ran = groupwise("train", "run", "--resume", "--set", "seed=7", "--set", "training.updates=4")
        assert content(tmp_path / "run") == before
    assert (ran.status, ran.out) == (2, "")
    assert ran.err == (
        "error: seed cannot change in a resumed run: it was 0, is 7; leave it as in run/config.toml, or begin "
        "another run in another folder\n"
    )


def test_readers_go_on_while_somebody_writes(groupwise: Run, tmp_path: Path) -> None:  # noqa: F811
    assert groupwise("train", small(tmp_path), "--out", "run").status == 0
    with holder(tmp_path / "run"):
        for arguments in (["inspect", "run"], ["report", "run"], ["audit", "run"], ["evaluate", "run", "--dry-run"]):
            ran = groupwise(*arguments)
            assert ran.status == 0, ran.err


@pytest.mark.more
def test_of_two_that_resume_with_other_rates_one_goes_on(groupwise: Run, tmp_path: Path) -> None:  # noqa: F811
    assert groupwise("train", small(tmp_path), "--out", "run").status == 0
    env = os.environ | {"PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1"}
    code = "import sys; from groupwise.cli.main import main; sys.exit(main())"
    settings = ("training.updates=4000", "training.checkpoint_every=4000")
    resuming = ["train", "--resume", "run", "--plain", *(word for each in settings for word in ("--set", each))]
    rates = [["--set", f"training.learner.learning_rate={rate}"] for rate in ("1e-3", "1e-4")]
    with subprocess.Popen([sys.executable, "-c", code, *resuming, *rates[0]], cwd=tmp_path, env=env) as first:
        until = time.monotonic() + 120
        while not (tmp_path / "run" / LOCK).exists() and first.poll() is None and time.monotonic() < until:
            time.sleep(0.05)
        second = groupwise(*resuming, *rates[1])
        assert first.poll() is None
        first.kill()
    assert second.status == 2
    assert f"run is being written by process {first.pid} on " in second.err.splitlines()[-1]
    with Journal(tmp_path / "run" / "journal.sqlite", read_only=True) as journal:
        assert journal.check_digest_chain().fault is None, "the updates are of one run"


def test_two_that_begin_in_one_folder_do_not_take_it_from_each_other(tmp_path: Path) -> None:
    folder = tmp_path / "new"
    with holder(folder):
        with pytest.raises(TrainingError, match="is being written"):
            open_run(small_config(), folder)
        assert folder.is_dir(), "it is the other's"


def test_a_second_warmup_for_the_same_folder_is_refused(groupwise: Run, tmp_path: Path) -> None:  # noqa: F811
    with holder(tmp_path / ".warm.tmp"):
        ran = groupwise("warmup", small(tmp_path), "--out", "warm")
        assert ran.status == 2
        assert ran.err.startswith("error: .warm.tmp is being written by process ")
        assert not (tmp_path / "warm").exists()
    (tmp_path / ".warm.tmp" / "model.safetensors").write_text("left behind")
    ran = groupwise("warmup", "small.toml", "--out", "warm", "--set", "warm_start.epochs=1")
    assert ran.status == 0, ran.err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["small.toml", "warm"]
    assert LOCK not in {path.name for path in (tmp_path / "warm").iterdir()}


def test_the_lock_lasts_from_open_to_the_end_and_in_one_process_too(tmp_path: Path) -> None:
    run = open_run(small_config(), tmp_path)
    with pytest.raises(TrainingError, match=f"is being written by process {os.getpid()} on "):
        open_run(small_config(), tmp_path)
    train(run)
    assert not (tmp_path / LOCK).exists()
    again = open_run(small_config(updates=2), tmp_path)
    with pytest.raises(TrainingError, match="is being written by process"):
        evaluate_run(run)
    train(again, resume=True)
    evaluate_run(run)
    del again
    assert not (tmp_path / LOCK).exists()


def test_a_run_that_is_let_go_of_lets_go_of_the_folder(tmp_path: Path) -> None:
    run = open_run(small_config(), tmp_path)
    lock = run.lock
    del run
    assert lock.is_held
    del lock
    assert not (tmp_path / LOCK).exists()


def test_a_run_that_is_refused_gives_the_folder_back(tmp_path: Path) -> None:
    config = small_config()
    with pytest.raises(Exception, match="nonsense"):
        open_run(config.model_copy(update={"device": "nonsense"}), tmp_path / "new")
    assert not (tmp_path / "new").exists()
    with pytest.raises(Exception, match="nonsense"):
        open_run(config.model_copy(update={"device": "nonsense"}), tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_no_child_has_the_lock(tmp_path: Path) -> None:
    """A forked child closes it, a program that is started never gets it: both outlive the holder's release."""
    lock = RunLock(tmp_path)
    lock.acquire()
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        os.close(writing)
        os.read(reading, 1)  # until the parent is done
        os._exit(0)
    started = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, close_fds=False)
    lock.release()
    try:
        RunLock(tmp_path).acquire()
    finally:
        os.close(writing)
        os.waitpid(child, 0)
        started.communicate(b"\n")


def test_a_child_that_ends_leaves_the_lock_to_its_parent(tmp_path: Path) -> None:
    lock = RunLock(tmp_path)
    lock.acquire()
    child = os.fork()
    if not child:
        lock.release()
        os._exit(0)
    os.waitpid(child, 0)
    assert (tmp_path / LOCK).exists()
    with pytest.raises(TrainingError):
        RunLock(tmp_path).acquire()


def test_where_files_cannot_be_locked_it_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(descriptor: int, how: int) -> None:
        raise OSError(37, "No locks available")

    monkeypatch.setattr("fcntl.flock", refuse)
    with caplog.at_level(logging.WARNING):
        RunLock(tmp_path).acquire()
    assert caplog.messages == [
        f"{tmp_path} cannot be locked (No locks available); instead, a count in run.lock is "
        "written every 10 seconds: start only one process at a time"
    ]


def test_a_lock_that_was_removed_in_the_meantime_is_taken_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real, calls = run_lock._flock, []

    def lock_and_remove(descriptor: int, path: Path) -> None:
        real(descriptor, path)
        calls.append(descriptor)
        if len(calls) == 1:
            path.unlink()

    monkeypatch.setattr(run_lock, "_flock", lock_and_remove)
    lock = RunLock(tmp_path)
    lock.acquire()
    assert len(calls) == 2
    assert (tmp_path / LOCK).exists()


def test_a_file_in_place_of_the_folder_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(FileError, match="file cannot be written"):
        RunLock(tmp_path / "file").acquire()
