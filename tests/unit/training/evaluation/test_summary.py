"""The summary of an evaluation: what is counted, over which tasks, with which interval."""

from __future__ import annotations

from dataclasses import replace

import pytest

from groupwise.store.journal import EvaluatedRollout
from groupwise.system.errors import TrainingError
from groupwise.training.evaluation.summary import Evaluation, mean_over_clusters, wilson_interval
from tests.unit.evaluations import make_evaluated

ROW = make_evaluated(number=5, tags="heat", outcome=10.0, steps=4)


def rows() -> list[EvaluatedRollout]:
    """Task a (heat) is solved with both seeds, b (heat, late) with seed 0 only, c (cool) never."""
    solved = {("a", 0): 1.0, ("a", 1): 1.0, ("b", 0): 1.0, ("b", 1): 0.0, ("c", 0): 0.0, ("c", 1): 0.0}
    tags = {"a": "heat", "b": "heat,late", "c": "cool"}
    return [
        replace(ROW, task=task, seed=seed, success=success, outcome=10 * success, tags=tags[task], steps=4 + seed)
        for (task, seed), success in solved.items()
    ]


def test_success_is_the_mean_over_seeds_with_tasks_as_clusters() -> None:
    summary = Evaluation.from_rows(rows())
    assert (summary.number, summary.split, summary.task_set, summary.tasks, summary.rollouts) == (5, "test", "p", 3, 6)
    assert (summary.success, summary.outcome, summary.steps, summary.faults) == (0.5, 5.0, 4.5, 0)
    assert summary.by_seed == pytest.approx({0: 2 / 3, 1: 1 / 3})
    assert (summary.success, summary.interval) == mean_over_clusters([[1.0, 1.0], [1.0, 0.0], [0.0, 0.0]])


def test_families_are_told_apart_and_a_task_with_two_tags_is_in_two() -> None:
    summary = {line.name: line for line in Evaluation.from_rows(rows()).by_tag()}
    assert list(summary) == ["cool", "heat", "late"]
    assert {name: (line.tasks, line.rollouts, line.success) for name, line in summary.items()} == {
        "cool": (1, 2, 0.0),
        "heat": (2, 4, 0.75),
        "late": (1, 2, 0.5),
    }


def test_every_task_has_a_line() -> None:
    summary = Evaluation.from_rows(rows()).by_task()
    assert [(line.name, line.success, line.steps) for line in summary] == [
        ("a", 1.0, 4.5),
        ("b", 0.5, 4.5),
        ("c", 0.0, 4.5),
    ]


def test_a_fault_is_counted_and_leaves_the_shares() -> None:
    fault = replace(ROW, task="c", seed=2, success=None, stop="error", outcome=0.0, steps=0)
    summary = Evaluation.from_rows([*rows(), fault])
    assert (summary.faults, summary.rollouts, summary.success) == (1, 6, 0.5)


def test_rollouts_that_all_fail_with_an_error_are_no_evaluation() -> None:
    with pytest.raises(TrainingError) as caught:
        Evaluation.from_rows([replace(ROW, success=None, stop="timeout")])
    assert str(caught.value) == (
        "split test: none of 1 rollouts says whether it succeeded (stop: timeout); test the environment with "
        "`groupwise check env`"
    )


def test_pass_at_k_counts_the_rollouts_of_all_seeds() -> None:
    summary = Evaluation.from_rows(rows())
    assert summary.rollouts_per_task == 2
    assert [(line.k, line.tasks, line.success) for line in summary.pass_at] == [
        (1, 3, 0.5),
        (2, 3, pytest.approx(2 / 3)),
    ]
    assert summary.pass_at[0].interval == pytest.approx(summary.interval)
    assert summary.pass_at[1].interval == pytest.approx(wilson_interval(2, 3)), (
        "one choice of two a task: as many tries as tasks"
    )


def test_pass_at_k_is_asked_for_powers_of_two_and_all_rollouts() -> None:
    many = [replace(ROW, task=task, rollout=n, success=float(n == 0)) for task in "ab" for n in range(6)]
    summary = Evaluation.from_rows(many).pass_at
    assert [line.k for line in summary] == [1, 2, 4, 6]
    assert [line.success for line in summary] == pytest.approx([1 / 6, 1 / 3, 2 / 3, 1.0])


def test_a_task_with_too_few_rollouts_is_left_out_of_pass_at_k() -> None:
    fault = replace(ROW, task="c", seed=1, success=None, stop="error")
    kept = [row for row in rows() if (row.task, row.seed) != ("c", 1)]
    summary = Evaluation.from_rows([*kept, fault])
    assert [(line.k, line.tasks, line.success) for line in summary.pass_at] == [(1, 3, 0.5), (2, 2, 1.0)]


def test_tokens_are_the_mean_over_rollouts_that_count() -> None:
    assert Evaluation.from_rows(rows()).tokens is None, "an older journal has not counted them"
    counted = [replace(row, tokens=10 + row.seed) for row in rows()]
    fault = replace(ROW, task="c", seed=2, success=None, stop="error", tokens=1000)
    assert Evaluation.from_rows([*counted, fault]).tokens == 10.5
