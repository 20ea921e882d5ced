"""Every alarm is raised in a run that deserves it, once, whatever interrupts the run; one that stops it can go on."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

from groupwise.learner.protocol import hash_weights
from groupwise.store.journal import Alarm, Update
from groupwise.training.alarms import AlarmsConfig, is_finished
from groupwise.training.config.run_config import RunConfig
from groupwise.training.loop import train
from groupwise.training.observer import RunObserver
from groupwise.training.open_run import open_run
from tests.end_to_end.deserved_alarms import DESERVED, TWINS, lay_over, make_deserving

SENTENCE = re.compile(r"[^.:].*\bupdates? \d+.*[:.] .*[A-Z][^;]+[a-z)]")
"""What was seen with its numbers and updates, why it matters, and what to do next."""


class Listener(RunObserver):
    """Remembers the alarms that it is told, and fails where it is to."""

    def __init__(self, *, fails_after: int = -1, fails_at_alarm: bool = False) -> None:
        self.alarms: list[Alarm] = []
        self._fails_after, self._fails_at_alarm = fails_after, fails_at_alarm

    def on_update(self, update: Update) -> None:
        if update.number == self._fails_after:
            raise OSError("the terminal is gone")

    def on_alarm(self, alarm: Alarm) -> None:
        self.alarms.append(alarm)
        if self._fails_at_alarm:
            raise OSError("the terminal is gone")


def play(folder: Path, config: RunConfig, *, resume: bool = False, listener: Listener | None = None) -> tuple[str, str]:
    """Train; the digests of the journal and of the weights."""
    with open_run(config, folder) as run:
        train(run, resume=resume, observers=[listener] if listener else [])
        return run.journal.digest(), hash_weights(run.learner.weights())


def read_alarms(folder: Path, config: RunConfig) -> list[Alarm]:
    with open_run(config, folder, read_only=True) as run:
        return run.journal.alarms()


def test_every_alarm_has_a_run_that_deserves_it() -> None:
    assert [name for name, _ in AlarmsConfig().list_rules()] == list(DESERVED) == list(TWINS)


@pytest.mark.few(3)
@pytest.mark.parametrize("name", DESERVED)
def test_an_alarm_stops_the_run_that_deserves_it(name: str, tmp_path: Path) -> None:
    config, listener = make_deserving(name, alarms={name: {"action": "stop"}}), Listener()
    play(tmp_path, config, listener=listener)
    with open_run(config, tmp_path, read_only=True) as run:
        alarms, last = run.journal.alarms(), run.journal.last_number()
        assert run.paths.checkpoint_numbers()[-1] == last < config.training.updates
    assert listener.alarms == alarms
    stops = [alarm for alarm in alarms if alarm.action == "stop"]
    assert [(alarm.name, alarm.number) for alarm in stops] == [(name, last)]
    assert SENTENCE.fullmatch(stops[0].sentence), stops[0].sentence
    assert is_finished(tmp_path, config)


@pytest.mark.few(2)
@pytest.mark.parametrize("name", TWINS)
def test_its_twin_without_the_cause_does_not_raise_it(name: str, tmp_path: Path) -> None:
    config = make_deserving(name, **TWINS[name])
    play(tmp_path, config)
    with open_run(config, tmp_path, read_only=True) as run:
        assert run.journal.last_number() == config.training.updates
        assert name not in {alarm.name for alarm in run.journal.alarms()}


HACKED = "reward_hacking"
"""The run below: three alarms within ten updates where two are averaged, one of them of an evaluation."""


def test_a_reward_is_hacked_where_success_falls_on_tasks_that_were_never_trained(tmp_path: Path) -> None:
    config = make_deserving(HACKED, training={"updates": 10})
    play(tmp_path, config)
    with open_run(config, tmp_path, read_only=True) as run:
        trained = {row["task"] for number in range(1, 11) for row in run.journal.trajectories(number)}
        assert trained.isdisjoint(row.task for row in run.journal.evaluations())
        [alarm] = [alarm for alarm in run.journal.alarms() if alarm.name == HACKED]
    assert alarm.sentence.startswith("success on the test tasks fell from ")


def make_hacked(*, training: Mapping[str, int] | None = None, **changes: Any) -> RunConfig:
    """It is short, so that its alarms look at two updates at a time."""
    watched = lay_over({"alarms": {"window": 2}}, changes)
    return make_deserving(HACKED, training={"updates": 10, "checkpoint_every": 3, **(training or {})}, **watched)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[tuple[str, str], list[Alarm]]:
    """What a run comes to that nobody interrupts, and its alarms."""
    folder = tmp_path_factory.mktemp("whole")
    return play(folder, make_hacked()), read_alarms(folder, make_hacked())


@pytest.mark.few(1)
@pytest.mark.parametrize("number", range(1, 10, 2))
def test_an_interrupted_run_raises_the_same_alarms_once(
    number: int, tmp_path: Path, whole: tuple[tuple[str, str], list[Alarm]]
) -> None:
    first, second = Listener(fails_after=number), Listener()
    with pytest.raises(OSError, match="gone"):
        play(tmp_path, make_hacked(), listener=first)
    assert play(tmp_path, make_hacked(), resume=True, listener=second) == whole[0]
    assert read_alarms(tmp_path, make_hacked()) == whole[1]
    kept = [alarm for alarm in first.alarms if alarm.number <= number - number % 3]  # the others come again
    assert [*kept, *second.alarms] == whole[1]


def test_an_alarm_that_an_observer_failed_at_is_written_and_not_lost(
    tmp_path: Path, whole: tuple[tuple[str, str], list[Alarm]]
) -> None:
    for rollout in range(20):
        try:
            play(
                tmp_path,
                make_hacked(training={"checkpoint_every": 1}),
                resume=rollout > 0,
                listener=Listener(fails_at_alarm=True),
            )
            break
        except OSError:
            continue
    assert 0 < rollout < 19
    assert read_alarms(tmp_path, make_hacked()) == whole[1]


def test_alarms_change_no_number(tmp_path: Path, whole: tuple[tuple[str, str], list[Alarm]]) -> None:
    off = make_hacked(alarms={name: {"action": "off"} for name in DESERVED})
    assert len(whole[1]) > 1
    assert play(tmp_path, off) == whole[0]
    assert read_alarms(tmp_path, off) == []


def test_a_stopped_run_goes_on_with_other_limits_as_if_it_had_had_them(
    tmp_path: Path, whole: tuple[tuple[str, str], list[Alarm]], caplog: pytest.LogCaptureFixture
) -> None:
    stops = make_hacked(alarms={HACKED: {"action": "stop"}})
    play(tmp_path, stops)
    before = read_alarms(tmp_path, stops)
    with caplog.at_level(logging.WARNING):
        play(tmp_path, stops, resume=True)
    assert "to continue with --resume, give alarms.reward_hacking other limits" in caplog.text
    assert read_alarms(tmp_path, stops) == before, "it stays where it is, and says so once"
    wider = make_hacked(alarms={HACKED: {"action": "stop", "rise": 1000.0}})
    assert not is_finished(tmp_path, wider)
    assert play(tmp_path, wider, resume=True) == whole[0]
    assert [alarm for alarm in read_alarms(tmp_path, wider) if alarm.action == "stop"] == before[-1:]


def test_a_stopped_run_goes_on_where_the_alarm_only_warns(
    tmp_path: Path, whole: tuple[tuple[str, str], list[Alarm]]
) -> None:
    play(tmp_path, make_hacked(alarms={HACKED: {"action": "stop"}}))
    assert play(tmp_path, make_hacked(), resume=True) == whole[0]


def test_a_limit_that_is_lowered_is_held_against_what_is_there(tmp_path: Path) -> None:
    play(tmp_path, make_hacked(training={"updates": 3}, evaluation={"every": 0}))
    lower = make_hacked(training={"updates": 6}, alarms={"cut_off": {"above": 0.0, "rise": 0.0}, "window": 1})
    listener = Listener()
    play(tmp_path, lower, resume=True, listener=listener)
    assert any(alarm.name == "cut_off" for alarm in listener.alarms)
