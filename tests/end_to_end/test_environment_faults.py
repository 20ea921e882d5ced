"""Environments that raise, hang or die in a real run cost their own rollouts; what spoils all of them stops the run."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("torch")

from groupwise.credit import EnvironmentReward
from groupwise.data.records import Trajectory
from groupwise.learner.protocol import hash_weights
from groupwise.rollout.episodes import Player
from groupwise.system.errors import EnvironmentFault, RecordError, TrainingError
from groupwise.training.config.run_config import EvaluationConfig, RolloutConfig
from groupwise.training.loop import train
from groupwise.training.open_run import open_run
from groupwise.training.run import Run
from tests.end_to_end.runs import config
from tests.end_to_end.unruly import TROUBLE_AT, Unruly

NO_EVALUATION = EvaluationConfig(tasks=0)


def run_with(folder: Path, trouble: str, *, workers: int, rollouts: int = 16) -> Run:
    settings = config(
        2,
        env=Unruly(trouble=trouble),  # type: ignore[arg-type]
        rollout=RolloutConfig(max_tokens=1, group_size=rollouts, workers=workers, env_timeout=0.3),
        evaluation=NO_EVALUATION,
    )
    return open_run(settings, folder)


@pytest.mark.few(2)
@pytest.mark.parametrize(
    ("trouble", "workers", "stop", "error"),
    [
        ("raise", 0, "error", "RuntimeError: the roof fell in"),
        ("raise", 1, "error", "RuntimeError: the roof fell in"),
        ("hang", 1, "timeout", "no answer within 0.3 seconds"),
        ("die", 1, "error", "the worker ended with status 7"),
        ("nan", 0, "error", "Outcome.reward is nan (float); give a finite number"),
        ("nan", 1, "error", "Outcome.reward is nan (float); give a finite number"),
    ],
)
def test_an_environment_that_fails_now_and_then_costs_its_rollouts_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, trouble: str, workers: int, stop: str, error: str
) -> None:
    played: list[list[Trajectory]] = []

    def play_and_keep(*arguments: object, **options: object) -> list[Trajectory]:
        played.append(real_play(*arguments, **options))  # type: ignore[arg-type]
        return played[-1]

    real_play = Player.play
    monkeypatch.setattr(Player, "play", play_and_keep)
    run = run_with(tmp_path, trouble, workers=workers)
    with run.host:
        train(run)
    assert run.journal.update_numbers() == [1, 2]
    for number, rollouts in enumerate(played, start=1):
        failed = [rollout for rollout in rollouts if rollout.steps[0].action.startswith(TROUBLE_AT)]
        assert 0 < len(failed) < 16
        assert {rollout.stop.value for rollout in failed} == {stop}
        assert all(error in (rollout.error or "") for rollout in failed), failed[0].error
        assert dict(run.journal.curve("rollout/faults"))[number] == len(failed)
        faults = run.journal.faults(number)
        assert len(faults) == len(failed)
        assert all(row["stop"] == stop and error in row["error"] for row in faults)
        kept = [(trajectory["task"], trajectory["rollout"]) for trajectory in run.journal.trajectories(number)]
        assert kept == sorted((each.task.id, each.rollout) for each in rollouts if each.error is None)
        assert len(kept) == 32 - len(failed)


def test_rollouts_at_one_task_that_begin_differently_stop_the_run(tmp_path: Path) -> None:
    run = run_with(tmp_path, "elsewhere", workers=0)
    with pytest.raises(EnvironmentFault) as caught:
        train(run)
    message = str(caught.value)
    assert "rollouts 0 and 1 start from different observations" in message
    assert message.endswith("open the environment from the task alone, without global random numbers")
    assert run.journal.last_number() == -1


class Spoilt(EnvironmentReward):
    """Pays what cannot be paid."""

    def __call__(self, trajectory: Trajectory) -> tuple[float, ...]:
        return tuple(float("nan") for _ in trajectory.steps)


def test_a_reward_part_that_gives_no_number_is_named(tmp_path: Path) -> None:
    run = open_run(config(2, rewards=(EnvironmentReward(), Spoilt()), evaluation=NO_EVALUATION), tmp_path)
    before = hash_weights(run.learner.weights())
    with pytest.raises(RecordError) as caught:
        train(run)
    assert "rollout 0, step 0: reward 'tests.end_to_end.test_environment_faults:Spoilt' is nan" in str(caught.value)
    assert hash_weights(run.learner.weights()) == before


class Broken:
    """Opens, and then always raises."""

    def __init__(self, sound: object) -> None:
        self._sound = sound

    def observe(self) -> object:
        return self._sound.observe()  # type: ignore[attr-defined]

    def act(self, action: str) -> None:
        raise OSError("no such room")


@pytest.mark.parametrize("evaluated", [True, False])
def test_an_environment_that_always_fails_stops_the_run_with_the_causes(tmp_path: Path, evaluated: bool) -> None:
    settings = config(2) if evaluated else config(2, evaluation=NO_EVALUATION)
    run = open_run(settings, tmp_path)
    sound = settings.env.open
    run.host._env = type("Env", (), {"open": lambda self, task: Broken(sound(task))})()  # type: ignore[attr-defined]
    with pytest.raises(TrainingError) as caught:
        train(run)
    assert str(caught.value) == (
        "evaluation on split train: none of 50 rollouts says whether it succeeded (50 x OSError: no such room); "
        "fix the environment, which `groupwise check env` tests"
        if evaluated
        else "update 1: only 0 of 128 rollouts survived (128 x OSError: no such room); fix the environment"
    )
