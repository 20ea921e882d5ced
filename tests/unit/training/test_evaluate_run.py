"""Evaluating a run: what its journal keeps, that seeds repeat the same tasks, and which checkpoint is played."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from groupwise.store.lock import RunLock
from groupwise.system.errors import ConfigError, TrainingError
from groupwise.training.checkpoints import open_run_at, remove_others, save_checkpoint, save_run
from groupwise.training.config.run_config import CheckpointsConfig
from groupwise.training.evaluation.evaluate import evaluate_run
from groupwise.training.loop import train
from tests.unit.training.runs import small_config, small_run


def test_the_same_seed_plays_the_same_and_another_seed_otherwise(tmp_path: Path) -> None:
    run = small_run(tmp_path)
    settings = run.config.evaluation.model_copy(update={"rollouts": 20})
    evaluation = evaluate_run(run, seeds=(0, 1), settings=settings, write=False)
    again = evaluate_run(run, seeds=(1,), settings=settings, write=False)
    actions = [tuple(step.action for step in trajectory.steps) for trajectory in evaluation.trajectories]
    assert actions[40:] == [tuple(step.action for step in trajectory.steps) for trajectory in again.trajectories]
    assert actions[:40] != actions[40:]
    assert (evaluation.tasks, evaluation.rollouts, list(evaluation.by_seed)) == (2, 80, [0, 1])
    assert evaluation.success == pytest.approx((evaluation.by_seed[0] + evaluation.by_seed[1]) / 2)


def test_an_evaluation_is_written_for_the_version_of_the_weights_and_made_again_it_is_replaced(tmp_path: Path) -> None:
    run = small_run(tmp_path)
    run.engine.load(run.learner.weights(), version=7)
    evaluate_run(run, seeds=(0, 1, 2))
    assert {(row.number, row.seed) for row in run.journal.evaluations()} == {(7, 0), (7, 1), (7, 2)}
    evaluation = evaluate_run(run, seeds=(0,), settings=run.config.evaluation.model_copy(update={"tasks": 1}))
    assert run.journal.evaluations() == list(evaluation.rows)
    evaluate_run(run, seeds=(5,), write=False)
    assert run.journal.evaluations() == list(evaluation.rows)


def test_whoever_was_followed_writes_no_evaluation_and_no_checkpoint_and_removes_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = small_run(tmp_path, updates=1)
    train(run)
    before, rows = run.paths.checkpoint_numbers(), run.journal.evaluations()
    keeps_one = dataclasses.replace(
        run, config=run.config.model_copy(update={"checkpoints": CheckpointsConfig(keep="best")})
    )

    def refuse(lock: RunLock) -> None:
        raise TrainingError("taken over")

    monkeypatch.setattr(RunLock, "check", refuse)
    writers: list[Callable[[], object]] = [
        lambda: evaluate_run(run, seeds=(9,)),
        lambda: save_run(run, 2),
        lambda: remove_others(keeps_one),
    ]
    for write in writers:
        with pytest.raises(TrainingError, match="taken over"):
            write()
    assert (run.paths.checkpoint_numbers(), run.journal.evaluations()) == (before, rows)


def test_sampled_tokens_are_counted_over_the_steps_of_an_rollout(tmp_path: Path) -> None:
    evaluation = evaluate_run(small_run(tmp_path))
    sampled = [sum(len(step.response_ids) for step in played.steps) for played in evaluation.trajectories]
    assert [row.tokens for row in evaluation.rows] == sampled
    assert min(sampled) >= 1
    assert evaluation.tokens == pytest.approx(sum(sampled) / len(sampled))


def test_an_evaluation_of_nothing_is_refused(tmp_path: Path) -> None:
    run = small_run(tmp_path)
    with pytest.raises(ConfigError, match="an evaluation needs tasks and seeds"):
        evaluate_run(run, settings=run.config.evaluation.model_copy(update={"tasks": 0}))


def test_a_run_opens_at_any_of_its_checkpoints(tmp_path: Path) -> None:
    run = small_run(tmp_path, updates=2)
    train(run)
    before = evaluate_run(run, write=False).rows
    assert open_run_at(small_config(), tmp_path).engine.version == 2
    assert evaluate_run(open_run_at(small_config(), tmp_path), write=False).rows == before
    first = open_run_at(small_config(), tmp_path, 0)
    assert first.engine.version == 0
    assert evaluate_run(first, write=False).rows != before


def test_a_checkpoint_that_is_not_there_is_told_before_a_model_loads(tmp_path: Path) -> None:
    class Unopened:
        def open(self, **settings: object) -> None:
            raise AssertionError("a model was loaded")

    config = small_config().model_copy(update={"model": Unopened()})
    with pytest.raises(ConfigError) as caught:
        open_run_at(config, tmp_path)
    assert str(caught.value) == f"{tmp_path}: there is no checkpoint; there are: none yet"
    run = small_run(tmp_path)
    for number in (0, 10):
        save_checkpoint(run.checkpoints, number, run.learner, run.tokenizer, {})
    with pytest.raises(ConfigError) as caught:
        open_run_at(config, tmp_path, 5)
    assert str(caught.value) == f"{tmp_path}: there is no checkpoint 5; there are: 0, 10"
