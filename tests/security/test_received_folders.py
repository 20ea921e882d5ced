"""A folder that somebody sent: what stands in it costs a sentence, and nothing outside it is written."""

from __future__ import annotations

import logging
import os
import sqlite3
from pathlib import Path

import pytest

from groupwise.cli.screen import SafeLogRecord
from groupwise.data.records import StopReason
from groupwise.report.prompts import make_response_decoder
from groupwise.rollout.environment_runner import Fault
from groupwise.store.journal import Journal, Update
from groupwise.store.lock import RunLock
from groupwise.store.run_folder import LOCK
from groupwise.system.errors import FileError, GroupwiseError
from groupwise.system.quoted_errors import quote_error
from groupwise.training.run_reader import RunFolder


def test_a_lock_that_is_a_link_writes_nowhere(tmp_path: Path) -> None:
    run, victim = tmp_path / "run", tmp_path / "victim.txt"
    run.mkdir()
    victim.write_text("mine")
    (run / LOCK).symlink_to(victim)
    with pytest.raises(FileError):
        RunLock(run).acquire()
    assert victim.read_text() == "mine"


def test_a_lock_that_is_a_pipe_does_not_hang(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / LOCK)
    with pytest.raises(FileError, match="no plain file"):
        RunLock(tmp_path).acquire()


@pytest.mark.parametrize("text", ["a = " + "[" * 100_000, "a = " + "1" * 6_000, ".".join("a" * 20_000) + " = 1"])
def test_settings_that_nobody_could_mean_are_one_sentence(tmp_path: Path, text: str) -> None:
    Journal(tmp_path / "journal.sqlite").close()
    (tmp_path / "config.toml").write_text(text)
    with pytest.raises(GroupwiseError) as raised:
        RunFolder(tmp_path)
    assert len(str(raised.value).splitlines()) == 1


@pytest.mark.parametrize("latest", [b"\xff\xfe", b"x" * 5_000, b"a\x00b", b"../../etc"])
def test_a_spoilt_pointer_costs_the_words_of_the_model_alone(tmp_path: Path, latest: bytes) -> None:
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / "checkpoints" / "latest").write_bytes(latest)
    assert make_response_decoder(tmp_path) is None


@pytest.mark.parametrize(
    ("column", "value"), [("outcome", "x"), ("stop", b"\xff\x00"), ("error", b"\xff"), ("rollout", "")]
)
def test_a_cell_of_another_type_is_one_sentence(tmp_path: Path, column: str, value: object) -> None:
    path = tmp_path / "journal.sqlite"
    with Journal(path) as journal:
        journal.write(Update(number=1, version=1, metrics={}))
    database = sqlite3.connect(path)
    row = {"number": 1, "task": "t", "rollout": 0, "stop": "terminated", "outcome": 0.0, "success": None}
    row |= {"origin": "fresh", "error": None, "steps": b"", "credit": b"", "parent": None, column: value}
    marks = ", ".join("?" * len(row))
    database.execute(f"INSERT INTO trajectories ({', '.join(row)}) VALUES ({marks})", list(row.values()))
    database.commit()
    database.close()
    with Journal(path, read_only=True) as journal, pytest.raises(FileError, match=f"the column {column} holds"):
        journal.rollouts()


def test_a_secret_is_hidden_before_a_message_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    secret = "SECRETVALUE_abcdefghijklmnopqrstuvwxyz"
    monkeypatch.setenv("OPENAI_API_KEY", secret)
    message = "x" * 480 + secret + " tail"
    assert "SECRETVALUE" not in Fault(reason=StopReason.ERROR, message=message).message
    assert "SECRETVALUE" not in quote_error(RuntimeError(message))


def test_a_traceback_in_a_log_is_shown_and_redacted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "SECRETVALUE_abcdefgh")
    try:
        raise RuntimeError("\x1b]52;c;aGk=\x07 SECRETVALUE_abcdefgh")
    except RuntimeError as error:
        raised = (type(error), error, error.__traceback__)
    record = SafeLogRecord("a", logging.ERROR, "f", 1, "m", (), raised)
    shown = logging.Formatter().format(record)
    assert "\x1b" not in shown
    assert "SECRETVALUE" not in shown
    assert r"\x1b]52" in shown
