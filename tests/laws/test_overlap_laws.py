"""Whatever the lag: the mix of tasks and of lengths that is trained is the mix that was asked for."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

pytest.importorskip("torch")

from groupwise.store.journal import Journal
from groupwise.system.errors import TrainingError
from groupwise.training.collect.ahead import PlayingThread
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
        goes_on = has_gone_on(run.journal)
    assert asked.lengths[SLOW] > 0
    assert read_trained_mix(tmp_path) == asked
    with Journal(tmp_path / "journal.sqlite", read_only=True) as journal:
        oldest = max(age for _, age in journal.curve("rollout/max_staleness")) if lag else 0.0
    assert oldest == (0.0 if lag == 0 else 1.0)
    assert lag == "free" or not goes_on, "rollouts go on over a weight sync where they may, and nowhere else"


def test_rollouts_go_on_over_a_sync_where_they_may(tmp_path: Path) -> None:
    for number in range(10):  # threads decide whether one does: mostly in the first run
        with open_run(make_config("free", updates=UPDATES), tmp_path / f"{number}") as run:
            train(run)
            if has_gone_on(run.journal):
                return
    pytest.fail("no rollout of ten runs has steps of two versions")


def has_gone_on(journal: Journal) -> bool:
    """Whether some rollout has steps that were sampled by different versions of the policy."""
    played = [rollout for number in range(1, UPDATES + 1) for rollout in journal.trajectories(number)]
    return any(len({step["version"] for step in rollout["steps"]}) > 1 for rollout in played)


def test_a_source_that_discards_what_is_too_old_starves_slow_tasks(tmp_path: Path) -> None:
    with open_run(make_config(0, updates=UPDATES), tmp_path) as run:
        source = Discarding(run, max_staleness=1)
        asked = read_asked_mix(run, UPDATES)
        for number in range(1, UPDATES + 1):
            make_update(run, number, RunObserver(), source)
    trained = read_trained_mix(tmp_path)
    assert trained != asked
    assert trained.lengths[SLOW] == 0 < asked.lengths[SLOW]


@pytest.mark.parametrize("max_staleness", [1, 2])
def test_staleness_is_bounded_by_when_rollouts_are_asked_for(tmp_path: Path, max_staleness: int) -> None:
    with open_run(make_config("free", updates=UPDATES, max_staleness=max_staleness), tmp_path) as run:
        train(run)
        assert all(age <= max_staleness for _, age in run.journal.curve("rollout/max_staleness"))
        assert read_trained_mix(tmp_path) == read_asked_mix(run, UPDATES)
    assert [thread.name for thread in threading.enumerate() if thread.name.startswith("rollouts of")] == []


class Interrupting(RunObserver):
    """Interrupts a run as the user would, in a stage of an update."""

    def __init__(self, stage: str, number: int) -> None:
        self._when = stage, number

    def on_stage(self, name: str, number: int) -> None:
        if (name, number) == self._when:
            raise KeyboardInterrupt


@pytest.mark.few(1)
@pytest.mark.parametrize(("stage", "number"), [("learn", 3), ("write", 4)])
def test_what_was_asked_for_is_trained_also_where_a_free_run_was_stopped(
    tmp_path: Path, stage: str, number: int
) -> None:
    """What was ready is learnt from as it was; what still played is played again, at the same tasks."""
    config = make_config("free", updates=UPDATES, max_staleness=2)
    with pytest.raises(KeyboardInterrupt), open_run(config, tmp_path) as run:
        train(run, observers=[Interrupting(stage, number)])
    assert [thread.name for thread in threading.enumerate() if thread.name.startswith("rollouts of")] == []
    with open_run(config, tmp_path) as run:
        train(run, resume=True)
        assert run.journal.update_numbers() == list(range(1, UPDATES + 1))
        assert all(age <= 2 for _, age in run.journal.curve("rollout/max_staleness"))
        assert read_trained_mix(tmp_path) == read_asked_mix(run, UPDATES)


@pytest.fixture
def stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A free run that stopped in update 6 of 8: what is ready after the checkpoint of 4 is up to 3 versions old."""
    config = make_config("free", updates=8, max_staleness=3)
    with monkeypatch.context() as patient:
        patient.setattr(PlayingThread, "has_ended", lambda self: True)  # it is waited for all that plays
        with pytest.raises(KeyboardInterrupt), open_run(config, tmp_path) as run:
            train(run, observers=[Interrupting("learn", 6)])
    return tmp_path


REFUSED = "rollouts that are ready for the next updates are up to 3 policy versions old, but"


@pytest.mark.more
@pytest.mark.parametrize(
    ("lag", "said"),
    [
        (
            1,
            "rollout.lag = 1 and rollout.max_staleness = 1 train none older than 1 versions. Resume with "
            "rollout.max_staleness = 3, also in a filter on staleness that the run file has, until there is a "
            "checkpoint of update 7, then with these settings",
        ),
        (
            0,
            "rollout.lag = 0 and rollout.max_staleness = 1 train none older than 0 versions. Resume with "
            "rollout.lag = 1, rollout.max_staleness = 3 and training.updates = 7 until there is a checkpoint of update "
            "7, then with these settings",
        ),
    ],
)
def test_a_lag_that_would_drop_what_is_ready_is_refused_and_what_is_advised_trains_it(
    stopped: Path, lag: int, said: str
) -> None:
    before = (stopped / "config.toml").read_bytes()
    with pytest.raises(TrainingError) as caught, open_run(make_config(lag, updates=8), stopped) as run:
        train(run, resume=True)
    assert str(caught.value) == f"{stopped}: {REFUSED} {said}"
    assert (stopped / "config.toml").read_bytes() == before
    with Journal(stopped / "journal.sqlite", read_only=True) as journal:
        assert journal.last_number() == 5, "nothing is forgotten"
    for config in (make_config(1, updates=7, max_staleness=3), make_config(lag, updates=8)):
        with open_run(config, stopped) as run:
            train(run, resume=True)
    with open_run(config, stopped) as run:
        ages = dict(run.journal.curve("rollout/max_staleness"))
        assert [ages.get(number) for number in (5, 6, 7, 8)] == [3.0, 3.0, 3.0, 0.0 if lag else None]
        assert read_trained_mix(stopped) == read_asked_mix(run, 8)


@pytest.mark.more
def test_what_is_ready_is_trained_without_a_lag_where_nobody_wants_it_corrected(stopped: Path) -> None:
    with open_run(make_config(0, updates=8, corrects_lag=False), stopped) as run:
        train(run, resume=True)
        assert dict(run.journal.curve("rollout/staleness")).keys() == set(range(1, 8)), (
            "without an age nothing is said of it"
        )
        assert read_trained_mix(stopped) == read_asked_mix(run, 8)
