"""Lag 1: what is played ahead, by which weights, and that it repeats to the bit, stopped and resumed too."""

from __future__ import annotations

import shutil
import sqlite3
import threading
from contextlib import closing
from pathlib import Path

import pytest

pytest.importorskip("torch")

from groupwise.store.journal import Journal
from groupwise.store.rollout_index import PastRollouts
from groupwise.system.errors import TrainingError
from groupwise.training.collect import collect as rounds
from groupwise.training.config.run_file import load_run
from groupwise.training.observer import RunObserver
from tests.end_to_end.overlapping_runs import KINDS, UPDATES, describe_end, make_config, play, read_versions


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A run of each kind that nothing disturbed."""
    folder = tmp_path_factory.mktemp("finished")
    for name in KINDS:
        play(folder / name, make_config(name))
    return {name: folder / name for name in KINDS}


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture
def whole(finished: dict[str, Path], kind: str) -> Path:
    """The run of a kind that nothing disturbed."""
    return finished[kind]


def test_every_update_but_the_first_was_sampled_by_the_version_before_the_learners(whole: Path) -> None:
    assert [read_versions(whole, number) for number in range(1, UPDATES + 1)] == [{0}, {0}, {1}, {2}, {3}]
    with Journal(whole / "journal.sqlite", read_only=True) as journal:
        ages = dict(journal.curve("rollout/staleness"))
        assert (
            ages == dict(journal.curve("rollout/max_staleness")) == {1: 0.0} | dict.fromkeys(range(2, UPDATES + 1), 1.0)
        )
        assert [number for number, _ in journal.curve("seconds/wait")] == list(range(1, UPDATES))
        assert [number for number, _ in journal.curve("speed/played_seconds")] == list(range(2, UPDATES + 1))
        assert any(loss for _, loss in journal.curve("loss/total"))


def test_a_run_repeats_itself_to_the_bit(whole: Path, kind: str, tmp_path: Path) -> None:
    play(tmp_path, make_config(kind))
    assert describe_end(tmp_path) == describe_end(whole)


def test_without_overlap_other_weights_sample_from_the_second_update_on(kind: str, whole: Path, tmp_path: Path) -> None:
    play(tmp_path, make_config(kind, lag=0))
    assert [read_versions(tmp_path, number) for number in range(1, UPDATES + 1)] == [{0}, {1}, {2}, {3}, {4}]
    chain, other = describe_end(tmp_path)["weights"], describe_end(whole)["weights"]
    assert chain["0000"] == other["0000"]
    assert chain["0004"] != other["0004"]
    with closing(sqlite3.connect(tmp_path / "journal.sqlite")) as database:
        assert not database.execute("SELECT 1 FROM pending").fetchone()


@pytest.mark.parametrize("checkpoint", ["0002", "0004"])
def test_a_run_that_goes_on_from_any_checkpoint_ends_alike(
    whole: Path, kind: str, tmp_path: Path, checkpoint: str
) -> None:
    shutil.copytree(whole, tmp_path / "run")
    (tmp_path / "run" / "checkpoints" / "latest").write_text(f"{checkpoint}\n")
    play(tmp_path / "run", make_config(kind), resume=True)
    assert describe_end(tmp_path / "run") == describe_end(whole)


def test_pending_rollouts_stay_for_checkpoints_and_for_the_newest_update(tmp_path: Path) -> None:
    kept: dict[int, list[int]] = {}

    class Looking(RunObserver):
        def on_update(self, update: object) -> None:
            with closing(sqlite3.connect(tmp_path / "journal.sqlite")) as database:
                rows = database.execute("SELECT DISTINCT number, following FROM pending ORDER BY number").fetchall()
            kept[len(kept) + 1] = [number for number, _ in rows]
            assert all(following == number + 1 for number, following in rows)

    play(tmp_path, make_config(), observers=[Looking()])
    assert kept == {1: [1], 2: [2], 3: [2, 3], 4: [2, 4], 5: [2, 4]}


class Interrupting(RunObserver):
    """Interrupts a run as the user would, in a stage of an update."""

    def __init__(self, stage: str, number: int) -> None:
        self._when = stage, number

    def on_stage(self, name: str, number: int) -> None:
        if (name, number) == self._when:
            raise KeyboardInterrupt


@pytest.mark.parametrize("stage", ["learn", "prepare", "write", "checkpoint"])
def test_a_run_that_is_interrupted_ends_at_once_and_goes_on_as_if_it_never_was(
    finished: dict[str, Path], tmp_path: Path, stage: str
) -> None:
    when = Interrupting(stage, 4 if stage == "checkpoint" else 3)
    with pytest.raises(KeyboardInterrupt):
        play(tmp_path / "cut", make_config(), observers=[when])
    assert [thread.name for thread in threading.enumerate() if thread.name.startswith("rollouts of")] == []
    play(tmp_path / "cut", make_config(), resume=True)
    assert describe_end(tmp_path / "cut") == describe_end(finished["rounds"])


def test_what_fails_while_it_is_played_ahead_is_raised_before_anything_of_the_update_is_written(
    finished: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stages: list[tuple[str, int]] = []

    class Noting(RunObserver):
        def on_stage(self, name: str, number: int) -> None:
            stages.append((name, number))

    with monkeypatch.context() as broken:

        def fail(run: object, number: int, *more: object) -> object:
            if number == 4:
                raise TrainingError("the roof fell in")
            return play_rounds(run, number, *more)  # type: ignore[arg-type]

        play_rounds = rounds.play_rounds
        broken.setattr("groupwise.training.collect.ahead.play_rounds", fail)
        with pytest.raises(TrainingError, match="the roof fell in"):
            play(tmp_path / "cut", make_config(), observers=[Noting()])
    assert stages[-2:] == [("learn", 3), ("wait", 3)]
    with Journal(tmp_path / "cut" / "journal.sqlite", read_only=True) as journal:
        assert journal.last_number() == 2
    play(tmp_path / "cut", make_config(), resume=True)
    assert describe_end(tmp_path / "cut") == describe_end(finished["rounds"])


def test_a_plan_reads_the_past_as_it_was_before_the_update_that_is_learnt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[bool, int]] = []
    mean_score = PastRollouts.mean_score

    def look(self: PastRollouts, task: str, *, max_rollouts: int) -> float | None:
        newest = self.newest(max_rollouts=1, after=0)
        seen.append((threading.current_thread() is threading.main_thread(), newest[0].number if newest else 0))
        return mean_score(self, task, max_rollouts=max_rollouts)

    monkeypatch.setattr(PastRollouts, "mean_score", look)
    play(tmp_path, make_config("replayed", updates=4))
    ahead = [number for is_main, number in seen if not is_main]
    assert list(dict.fromkeys(ahead)) == [0, 1, 2]  # for the updates 2, 3 and 4


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        ("DELETE FROM pending WHERE number = 4", "are missing"),
        ("DELETE FROM pending WHERE number = 4 AND place = 1", "are not as they were written"),
        ("UPDATE pending SET content = x'00' WHERE number = 4 AND place = 0", "are not as they were written"),
        ("UPDATE pending SET following = 7 WHERE number = 4", "are not as they were written"),
    ],
)
def test_damage_among_pending_rollouts_is_said_in_a_sentence(
    finished: dict[str, Path], tmp_path: Path, damage: str, said: str
) -> None:
    shutil.copytree(finished["rounds"], tmp_path, dirs_exist_ok=True)
    (tmp_path / "checkpoints" / "latest").write_text("0004\n")
    with closing(sqlite3.connect(tmp_path / "journal.sqlite")) as database, database:
        assert database.execute(damage).rowcount
    with pytest.raises(TrainingError) as caught:
        play(tmp_path, make_config(), resume=True)
    latest = tmp_path / "checkpoints" / "latest"
    assert str(caught.value) == (
        f"{tmp_path}: the rollouts that were sampled ahead for update 5 {said}, and the weights that sampled them are "
        "gone; the newest checkpoint that is whole and fits the journal is 0005: write `0005` into "
        f"{latest} and resume"
    )


@pytest.mark.parametrize("lag", [0, 1])
def test_what_was_played_ahead_is_trained_whatever_the_lag_is_afterwards(
    finished: dict[str, Path], tmp_path: Path, lag: int
) -> None:
    shutil.copytree(finished["rounds"], tmp_path, dirs_exist_ok=True)
    (tmp_path / "checkpoints" / "latest").write_text("0002\n")
    with Journal(tmp_path / "journal.sqlite", read_only=True) as journal:
        third = list(journal.trajectories(3))
    play(tmp_path, load_run(tmp_path, overrides=[f"rollout.lag={lag}"]), resume=True)  # with the correction it had
    with Journal(tmp_path / "journal.sqlite", read_only=True) as journal:
        assert list(journal.trajectories(3)) == third
        assert dict(journal.curve("rollout/staleness")) == {1: 0.0} | dict.fromkeys(
            (2, 3, 4, 5) if lag else (2, 3), 1.0
        )
    assert [read_versions(tmp_path, number) for number in (3, 4, 5)] == [{1}, {2 + 1 - lag}, {3 + 1 - lag}]
