"""The verdicts on a run, the sentence that the page makes of one, and what stands there without an evaluation."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from groupwise.report.overview import find_sampling_success, find_verdict, list_verdicts
from groupwise.report.page import write_verdict_sentence
from groupwise.store.journal import Journal
from groupwise.training.evaluation.summary import make_verdict
from groupwise.training.run_reader import RunFolder
from tests.unit.report.run_folders import write_run
from tests.unit.training.evaluation.task_set_rows import AFTER, BEFORE, task_set_rows


def test_a_verdict_with_intervals_apart_is_progress() -> None:
    assert write_verdict_sentence(make_verdict(BEFORE + AFTER, "test")) == (
        "Success on 10 tasks of the test set rose by 80.0 points; the 95\u202f% intervals do not overlap."
    )


def test_a_single_evaluation_is_compared_with_nothing() -> None:
    again = [replace(row, seed=1, success=1.0 - (row.success or 0.0)) for row in AFTER]
    assert write_verdict_sentence(make_verdict(AFTER + again, "test")) == (
        "Success on 10 tasks of the test set (20 rollouts), after update 8. "
        "There is no other evaluation to compare with."
    )


def test_overlapping_intervals_are_no_progress() -> None:
    verdict = make_verdict(BEFORE + task_set_rows(8, [1.0, 1.0] + [0.0] * 8), "test")
    assert not verdict.is_clear
    assert write_verdict_sentence(verdict) == (
        "Success on 10 tasks of the test set rose by 10.0 points; "
        "the 95\u202f% intervals overlap, so this may be chance."
    )
    worse = make_verdict(AFTER + task_set_rows(9, [row.success for row in BEFORE]), "test")
    assert write_verdict_sentence(worse) == (
        "Success on 10 tasks of the test set fell by 80.0 points; the 95\u202f% intervals do not overlap."
    )
    same = make_verdict(BEFORE + task_set_rows(8, [row.success for row in BEFORE]), "test")
    assert write_verdict_sentence(same) == (
        "Success on 10 tasks of the test set did not change; the 95\u202f% intervals overlap, so this may be chance."
    )


def test_evaluations_on_different_tasks_cannot_be_compared() -> None:
    verdict = make_verdict(BEFORE + task_set_rows(8, [1.0] * 10, task_set="q"), "test")
    assert not verdict.is_one_task_set
    assert write_verdict_sentence(verdict) == (
        "Success before training and after update 8, on different tasks, so they cannot be compared."
    )


def test_the_split_is_the_one_that_the_settings_name(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", updates=1, tasks=1, rollouts=2)
    with Journal(folder / "journal.sqlite") as journal:
        journal.write_evaluation(task_set_rows(0, [1.0], split="train"))
        journal.write_evaluation(task_set_rows(1, [1.0], split="train"))
    with RunFolder(folder) as run:
        verdict = find_verdict(run)
        assert verdict is not None
        assert (verdict.split, len(verdict.scores)) == ("train", 2)
    with Journal(folder / "journal.sqlite") as journal:
        journal.write_evaluation(task_set_rows(0, [0.0]))
    with RunFolder(folder) as run:
        verdict = find_verdict(run)
        assert verdict is not None
        assert verdict.split == "test"
        assert [verdict.split for verdict in list_verdicts(run)] == ["test", "train"]


def test_a_run_that_was_never_evaluated_has_no_verdict(tmp_path: Path) -> None:
    with RunFolder(write_run(tmp_path / "run", updates=2, tasks=2, rollouts=2)) as run:
        assert find_verdict(run) is None
        assert find_sampling_success(run) == tuple(run.metrics["rollout/success"][number] for number in (1, 2))
    with RunFolder(write_run(tmp_path / "none", updates=0)) as run:
        assert find_sampling_success(run) is None
