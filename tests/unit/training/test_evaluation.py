"""Evaluation: what is counted, what is written down, and that seeds are repetitions of the same tasks."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from groupwise.core.errors import ConfigError, TrainingError
from groupwise.core.journal.journal import Evaluated
from groupwise.evaluation.intervals import clustered, wilson
from groupwise.evaluation.summary import Evaluation, evaluations_of
from tests.unit.evaluations import evaluated

ROW = evaluated(number=5, tags="heat", outcome=10.0, steps=4)


def rows() -> list[Evaluated]:
    """Task a (heat) is solved with both seeds, b (heat, late) with seed 0 only, c (cool) never."""
    solved = {("a", 0): 1.0, ("a", 1): 1.0, ("b", 0): 1.0, ("b", 1): 0.0, ("c", 0): 0.0, ("c", 1): 0.0}
    tags = {"a": "heat", "b": "heat,late", "c": "cool"}
    return [
        replace(ROW, task=task, seed=seed, success=success, outcome=10 * success, tags=tags[task], steps=4 + seed)
        for (task, seed), success in solved.items()
    ]


def test_success_is_the_mean_over_seeds_with_tasks_as_clusters() -> None:
    found = Evaluation.of(rows())
    assert (found.number, found.split, found.panel, found.tasks, found.attempts) == (5, "test", "p", 3, 6)
    assert (found.success, found.outcome, found.steps, found.faults) == (0.5, 5.0, 4.5, 0)
    assert found.by_seed == pytest.approx({0: 2 / 3, 1: 1 / 3})
    assert (found.success, found.interval) == clustered([[1.0, 1.0], [1.0, 0.0], [0.0, 0.0]])


def test_families_are_told_apart_and_a_task_with_two_tags_is_in_two() -> None:
    found = {line.name: line for line in Evaluation.of(rows()).by_tag()}
    assert list(found) == ["cool", "heat", "late"]
    assert {name: (line.tasks, line.attempts, line.success) for name, line in found.items()} == {
        "cool": (1, 2, 0.0),
        "heat": (2, 4, 0.75),
        "late": (1, 2, 0.5),
    }


def test_every_task_has_a_line() -> None:
    found = Evaluation.of(rows()).by_task()
    assert [(line.name, line.success, line.steps) for line in found] == [
        ("a", 1.0, 4.5),
        ("b", 0.5, 4.5),
        ("c", 0.0, 4.5),
    ]


def test_a_fault_is_counted_and_leaves_the_shares() -> None:
    fault = replace(ROW, task="c", seed=2, success=None, stop="error", outcome=0.0, steps=0)
    found = Evaluation.of([*rows(), fault])
    assert (found.faults, found.attempts, found.success) == (1, 6, 0.5)


def test_attempts_that_all_fail_with_an_error_are_no_evaluation() -> None:
    with pytest.raises(TrainingError) as caught:
        Evaluation.of([replace(ROW, success=None, stop="timeout")])
    assert str(caught.value) == (
        "split 'test': none of 1 attempts says whether it succeeded (stop: timeout); `groupwise check env` shows what "
        "the environment does wrong"
    )


def test_pass_at_k_counts_the_attempts_of_all_seeds() -> None:
    found = Evaluation.of(rows())
    assert found.attempts_per_task == 2
    assert [(line.k, line.tasks, line.success) for line in found.pass_at()] == [
        (1, 3, 0.5),
        (2, 3, pytest.approx(2 / 3)),
    ]
    assert found.pass_at()[0].interval == pytest.approx(found.interval)
    assert found.pass_at()[1].interval == pytest.approx(wilson(2, 3)), (
        "one choice of two a task: as many tries as tasks"
    )


def test_pass_at_k_is_asked_for_powers_of_two_and_all_attempts() -> None:
    many = [replace(ROW, task=task, attempt=n, success=float(n == 0)) for task in "ab" for n in range(6)]
    found = Evaluation.of(many).pass_at()
    assert [line.k for line in found] == [1, 2, 4, 6]
    assert [line.success for line in found] == pytest.approx([1 / 6, 1 / 3, 2 / 3, 1.0])


def test_a_task_with_too_few_attempts_is_left_out_of_pass_at_k() -> None:
    fault = replace(ROW, task="c", seed=1, success=None, stop="error")
    kept = [row for row in rows() if (row.task, row.seed) != ("c", 1)]
    found = Evaluation.of([*kept, fault])
    assert [(line.k, line.tasks, line.success) for line in found.pass_at()] == [(1, 3, 0.5), (2, 2, 1.0)]


def test_tokens_are_the_mean_over_attempts_that_count() -> None:
    assert Evaluation.of(rows()).tokens is None, "an older journal has not counted them"
    counted = [replace(row, tokens=10 + row.seed) for row in rows()]
    fault = replace(ROW, task="c", seed=2, success=None, stop="error", tokens=1000)
    assert Evaluation.of([*counted, fault]).tokens == 10.5


def test_a_journals_rows_are_one_evaluation_for_each_update_and_split() -> None:
    early = [replace(row, number=0, success=0.0) for row in rows()]
    other = [replace(row, split="validation", panel="q") for row in rows()]
    found = evaluations_of([*rows(), *early, *other])
    assert [(each.number, each.split, each.success) for each in found] == [
        (0, "test", 0.0),
        (5, "test", 0.5),
        (5, "validation", 0.5),
    ]


torch = pytest.importorskip("torch")

from groupwise.training.checkpoints.checkpoint import save_checkpoint  # noqa: E402
from groupwise.training.checkpoints.resume import open_run_at  # noqa: E402
from groupwise.training.evaluate_run import evaluate_run  # noqa: E402
from groupwise.training.loop import train  # noqa: E402
from tests.unit.training.runs import small_config, small_run  # noqa: E402


def test_the_same_seed_plays_the_same_and_another_seed_otherwise(tmp_path: Path) -> None:
    run = small_run(tmp_path)
    settings = run.config.evaluation.model_copy(update={"attempts": 20})
    found = evaluate_run(run, seeds=(0, 1), settings=settings, write=False)
    again = evaluate_run(run, seeds=(1,), settings=settings, write=False)
    said = [tuple(step.action for step in trajectory.steps) for trajectory in found.trajectories]
    assert said[40:] == [tuple(step.action for step in trajectory.steps) for trajectory in again.trajectories]
    assert said[:40] != said[40:]
    assert (found.tasks, found.attempts, list(found.by_seed)) == (2, 80, [0, 1])
    assert found.success == pytest.approx((found.by_seed[0] + found.by_seed[1]) / 2)


def test_an_evaluation_is_written_for_the_version_of_the_weights_and_made_again_it_is_replaced(tmp_path: Path) -> None:
    run = small_run(tmp_path)
    run.engine.load(run.learner.weights(), version=7)
    evaluate_run(run, seeds=(0, 1, 2))
    assert {(row.number, row.seed) for row in run.journal.evaluations()} == {(7, 0), (7, 1), (7, 2)}
    found = evaluate_run(run, seeds=(0,), settings=run.config.evaluation.model_copy(update={"tasks": 1}))
    assert run.journal.evaluations() == list(found.rows)
    evaluate_run(run, seeds=(5,), write=False)
    assert run.journal.evaluations() == list(found.rows)


def test_sampled_tokens_are_counted_over_the_steps_of_an_attempt(tmp_path: Path) -> None:
    found = evaluate_run(small_run(tmp_path))
    sampled = [sum(len(step.response_ids) for step in played.steps) for played in found.trajectories]
    assert [row.tokens for row in found.rows] == sampled
    assert min(sampled) >= 1
    assert found.tokens == pytest.approx(sum(sampled) / len(sampled))


def test_an_evaluation_of_nothing_is_refused(tmp_path: Path) -> None:
    run = small_run(tmp_path)
    with pytest.raises(ConfigError, match="an evaluation of no task says nothing"):
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
