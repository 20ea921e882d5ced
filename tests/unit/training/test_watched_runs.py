"""A run that is watched from Python: alarms nobody hears are logged, and a stop set at a resume stops what holds."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

from groupwise import RunObserver, load_run, train
from groupwise.store.journal import Alarm, Journal
from groupwise.store.run_folder import RunPaths

SENTENCE = "no group had any advantage in 1 updates (update {number})"
GOING_ON = (
    "to continue with --resume, give alarms.no_signal other limits, or set alarms.no_signal.action to warn or off"
)


def describe_run(action: str, updates: int) -> dict[str, Any]:
    """A run in which nothing earns, so that no group ever has any credit."""
    return {
        "algorithm": {"method": "dr_grpo"},
        "env": {"kind": "identity", "num_words": 4, "length": 1},
        "model": {"kind": "tiny", "hidden": 16, "layers": 1, "heads": 2},
        "rewards": [{"kind": "environment", "weight": 0.0}],
        "rollout": {"max_tokens": 1, "group_size": 2},
        "training": {"updates": updates, "tasks": 2, "checkpoint_every": 1},
        "evaluation": {"tasks": 0},
        "alarms": {"window": 2, "no_signal": {"updates": 1, "action": action}},
    }


def list_alarms(folder: Path) -> list[tuple[int, str]]:
    with Journal(RunPaths(folder).journal, read_only=True) as journal:
        return [(alarm.number, alarm.action) for alarm in journal.alarms()]


class Listener(RunObserver):
    """Hears of alarms."""

    def __init__(self) -> None:
        self.alarms: list[Alarm] = []

    def on_alarm(self, alarm: Alarm) -> None:
        self.alarms.append(alarm)


@pytest.mark.parametrize("action", ["stop", "warn"])
def test_an_alarm_that_no_observer_hears_is_logged(
    action: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        folder = train(describe_run(action, updates=3), tmp_path / "alone", observers=[RunObserver()])
    assert len(caplog.messages) == 1
    verb = "stopped by" if action == "stop" else "alarm"
    assert caplog.messages[0].startswith(f"{folder}: {verb} no_signal after update 1: {SENTENCE.format(number=1)}, ")
    assert caplog.messages[0].endswith(f"; {GOING_ON}") == (action == "stop")
    caplog.clear()
    listener = Listener()
    with caplog.at_level(logging.WARNING):
        train(describe_run(action, updates=3), tmp_path / "heard", observers=[listener])
    assert (len(listener.alarms), caplog.messages) == (1, [])


def test_an_observer_whose_handler_is_its_own_hears_of_an_alarm(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    alarms: list[Alarm] = []
    observer = RunObserver()
    observer.on_alarm = alarms.append  # type: ignore[method-assign]
    with caplog.at_level(logging.WARNING):
        train(describe_run("warn", updates=1), tmp_path / "run", observers=[observer])
    assert (len(alarms), caplog.messages) == (1, [])


def test_a_stop_that_is_set_where_the_alarm_began_to_hold_ends_the_run_at_once(tmp_path: Path) -> None:
    folder = train(describe_run("warn", updates=1), tmp_path / "run")
    train(describe_run("stop", updates=3), folder, resume=True)
    with Journal(RunPaths(folder).journal, read_only=True) as journal:
        assert journal.last_number() == 1


def test_a_stop_that_is_set_at_a_resume_stops_what_holds_already(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = train(describe_run("warn", updates=5), tmp_path / "run")
    assert list_alarms(folder) == [(1, "warn")]
    stopping = load_run(folder, overrides=["training.updates=9", "alarms.no_signal.action=stop"])
    for _ in range(2):  # the second time it stays stopped
        caplog.clear()
        train(stopping, folder, resume=True)
        assert list_alarms(folder) == [(1, "warn"), (6, "stop")]
        assert [
            message.startswith(f"{folder}: stopped by no_signal after update 6: ") for message in caplog.messages
        ] == [True]
    caplog.clear()
    going_on = load_run(folder, overrides=["alarms.no_signal.action=warn"])
    train(going_on, folder, resume=True)
    assert list_alarms(folder) == [(1, "warn"), (6, "stop")]
    assert caplog.messages == []
    with Journal(RunPaths(folder).journal, read_only=True) as journal:
        assert journal.last_number() == 9
