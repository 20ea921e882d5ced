"""Whatever the lag: the mix of tasks and of lengths that is trained is the mix that was asked for."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

pytest.importorskip("torch")

from groupwise.core.journal.journal import Journal
from groupwise.training.loop import make_update, train
from groupwise.training.observer import RunObserver
from groupwise.training.open_run import open_run
from tests.laws.slow_tasks import SLOW, Discarding, make_config, read_asked_mix, read_trained_mix

UPDATES = 5


@pytest.mark.parametrize("lag", [0, 1, "free"])
def test_what_is_trained_is_what_was_asked_for(tmp_path: Path, lag: int | str) -> None:
    with open_run(make_config(lag, updates=UPDATES), tmp_path) as run:
        asked = read_asked_mix(run, UPDATES)
        train(run)
        played = [attempt for number in range(1, UPDATES + 1) for attempt in run.journal.trajectories(number)]
    assert asked.lengths[SLOW] > 0
    assert read_trained_mix(tmp_path) == asked
    with Journal(tmp_path / "journal.sqlite", read_only=True) as journal:
        oldest = max(age for _, age in journal.curve("rollout/max_age")) if lag else 0.0
    assert oldest == (0.0 if lag == 0 else 1.0)
    goes_on = [len({step["version"] for step in attempt["steps"]}) > 1 for attempt in played]
    assert any(goes_on) == (lag == "free"), "attempts go on over a hand-over where they may, and nowhere else"


def test_a_source_that_discards_what_is_too_old_starves_slow_tasks(tmp_path: Path) -> None:
    with open_run(make_config(0, updates=UPDATES), tmp_path) as run, Discarding(run, max_age=1) as source:
        asked = read_asked_mix(run, UPDATES)
        for number in range(1, UPDATES + 1):
            make_update(run, number, RunObserver(), source)
    trained = read_trained_mix(tmp_path)
    assert trained != asked
    assert trained.lengths[SLOW] == 0 < asked.lengths[SLOW]


@pytest.mark.parametrize("max_age", [1, 2])
def test_staleness_is_bounded_by_when_attempts_are_asked_for(tmp_path: Path, max_age: int) -> None:
    with open_run(make_config("free", updates=UPDATES, max_age=max_age), tmp_path) as run:
        train(run)
        assert all(age <= max_age for _, age in run.journal.curve("rollout/max_age"))
        assert read_trained_mix(tmp_path) == read_asked_mix(run, UPDATES)
    assert [thread.name for thread in threading.enumerate() if thread.name.startswith("attempts of")] == []


class Interrupting(RunObserver):
    """Interrupts a run as the user would, in a stage of an update."""

    def __init__(self, stage: str, number: int) -> None:
        self._when = stage, number

    def on_stage(self, name: str, number: int) -> None:
        if (name, number) == self._when:
            raise KeyboardInterrupt


@pytest.mark.parametrize(("stage", "number"), [("learn", 3), ("write", 4)])
def test_what_was_asked_for_is_trained_also_where_a_free_run_was_stopped(
    tmp_path: Path, stage: str, number: int
) -> None:
    """What was ready is learnt from as it was; what still played is played again, at the same tasks."""
    config = make_config("free", updates=UPDATES, max_age=2)
    with pytest.raises(KeyboardInterrupt), open_run(config, tmp_path) as run:
        train(run, observers=[Interrupting(stage, number)])
    assert [thread.name for thread in threading.enumerate() if thread.name.startswith("attempts of")] == []
    with open_run(config, tmp_path) as run:
        train(run, resume=True)
        assert run.journal.update_numbers() == list(range(1, UPDATES + 1))
        assert all(age <= 2 for _, age in run.journal.curve("rollout/max_age"))
        assert read_trained_mix(tmp_path) == read_asked_mix(run, UPDATES)
