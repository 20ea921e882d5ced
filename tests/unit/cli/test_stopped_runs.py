"""A run that an alarm stops, at the command line: a sentence, a status of its own, and how it goes on."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("torch")

from groupwise.cli.sweep import FailedRun, train_runs
from groupwise.report.recorded_run import read_run
from groupwise.training.sweep import PlannedRun
from tests.unit.cli.conftest import Run
from tests.unit.cli.run_files import small

RULE = "alarms.no_signal"
NOTHING = ("--set", "rewards=[{kind='environment', weight=0.0}]")
"""Nothing earns, so that no group has any credit."""
STOPPING = (*NOTHING, "--set", f"{RULE}.updates=2", "--set", f"{RULE}.action=stop", "--set", "training.updates=4")
SENTENCE = (
    "stopped by no_signal after update 2: no group had any advantage in 2 updates (updates 1 to 2), because all "
    "rollouts of a task have equal scores: nothing is learned. Begin a run with easier tasks, a warm start, more "
    "rollouts per task (rollout.group_size) or a method that replays past ones"
)
GOING_ON = f"to continue with --resume, give {RULE} other limits, or set {RULE}.action to warn or off"


@pytest.fixture
def stopped(groupwise: Run, tmp_path: Path) -> Path:
    ran = groupwise("train", small(tmp_path), "--out", "run", *STOPPING)
    assert ran.status == 3
    assert ran.err == f"run was {SENTENCE}; {GOING_ON}\n"
    assert SENTENCE in ran.out.splitlines(), "among the lines of the updates"
    return tmp_path / "run"


def test_a_stopped_run_says_so_again_and_goes_on_with_other_limits(groupwise: Run, stopped: Path) -> None:
    ran = groupwise("train", "--resume", "run")
    assert (ran.status, ran.err) == (3, f"run was {SENTENCE}; {GOING_ON}\n")
    ran = groupwise("train", "--resume", "run", "--set", f"{RULE}.action=warn")
    assert ran.status == 0, ran.err
    assert (
        ran.err
        == "changed since the run began: alarms.no_signal.action was 'stop', is 'warn'\nresumes after update 2 of 4\n"
    )
    assert [line[:11] for line in ran.out.splitlines() if line.startswith("update")] == ["update    3", "update    4"]
    assert "no_signal" not in ran.out, "what was told is not told twice"


def test_inspect_and_report_show_alarms_and_changes(groupwise: Run, stopped: Path) -> None:
    groupwise("train", "--resume", "run", "--set", f"{RULE}.action=warn", "--set", "training.learner.learning_rate=0.5")
    shown = groupwise("inspect", "run").out
    assert SENTENCE in shown
    assert "from update 3 on: training.learner.learning_rate was 0.001, is 0.5" in shown
    data = json.loads(groupwise("inspect", "run", "--json").out)
    assert [(alarm["number"], alarm["name"], alarm["action"]) for alarm in data["alarms"]] == [(2, "no_signal", "stop")]
    assert data["changes"][1] == {
        "number": 2,
        "path": "training.learner.learning_rate",
        "before": 0.001,
        "after": 0.5,
    }
    assert groupwise("report", "run").status == 0
    page = (stopped / "report.html").read_text(encoding="utf-8")
    assert "<h2>Alarms and changed settings</h2>" in page
    assert "After update 2, stopped by <code>no_signal</code>: no group had any advantage in 2 updates" in page
    assert "After update 2, changed <code>training.learner.learning_rate</code>: was 0.001, is 0.5." in page


def test_they_come_as_data_frames_too(stopped: Path) -> None:
    for library in ("pandas", "polars"):
        pytest.importorskip(library)
        with read_run(stopped, frames=library) as run:  # type: ignore[arg-type]
            alarms, changes = run.alarms(), run.changes()
        assert list(alarms.columns) == ["update", "name", "action", "sentence"]
        assert (list(alarms["update"]), list(alarms["name"])) == ([2], ["no_signal"])
        assert list(changes.columns) == ["update", "path", "before", "after"]
        assert len(changes) == 0


def test_a_run_without_alarms_has_no_section_for_them(groupwise: Run, tmp_path: Path) -> None:
    groupwise("train", small(tmp_path), "--out", "run")
    groupwise("report", "run")
    assert "Alarms and changed settings" not in (tmp_path / "run" / "report.html").read_text(encoding="utf-8")


def test_a_stop_after_the_last_update_is_an_end_like_any(groupwise: Run, tmp_path: Path) -> None:
    ran = groupwise("train", small(tmp_path), "--out", "run", *STOPPING, "--set", "training.updates=2")
    assert (ran.status, ran.err) == (0, "")
    assert "is finished" in groupwise("train", "--resume", "run").out
    more = groupwise("train", "--resume", "run", "--set", "training.updates=3")
    assert (more.status, more.err.splitlines()[-1]) == (3, f"run was {SENTENCE}; {GOING_ON}")


def test_a_hostile_sentence_moves_no_cursor(groupwise: Run, stopped: Path) -> None:
    import sqlite3

    with sqlite3.connect(stopped / "journal.sqlite") as database:
        database.execute("UPDATE alarms SET sentence = ?", ("\x1b[2J<script>alert(1)</script>[bold]",))
    assert "\x1b" not in groupwise("inspect", "run").out
    groupwise("report", "run")
    assert "<script>" not in (stopped / "report.html").read_text(encoding="utf-8")
    with sqlite3.connect(stopped / "journal.sqlite") as database:
        database.execute("UPDATE alarms SET sentence = ?", (b"\xff",))
    ran = groupwise("inspect", "run")
    assert ran.status == 2
    assert "the journal is damaged" in ran.err


class Ended:
    """A process that has ended."""

    def __init__(self, status: int) -> None:
        self._status = status

    def poll(self) -> int | None:
        return self._status

    def send_signal(self, sig: int) -> None: ...

    def kill(self) -> None: ...


class Quiet:
    """Reports nothing."""

    def on_begin(self, run: PlannedRun) -> None: ...

    def on_end(self, run: PlannedRun, failure: FailedRun | None) -> None: ...

    def on_time(self, under_way: object) -> None: ...


@pytest.mark.parametrize(("status", "num_failed"), [(0, 0), (3, 0), (2, 1)])
def test_a_sweep_takes_a_stopped_run_for_one_that_has_ended(status: int, num_failed: int, tmp_path: Path) -> None:
    run = PlannedRun(variant="a", seed=0, folder=tmp_path)
    assert len(train_runs([run], [None], Quiet(), lambda run, gpu: Ended(status))) == num_failed
