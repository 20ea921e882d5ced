"""What a run achieved: intervals as evaluation computes them, categories, and when nothing can be said."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from groupwise.training.evaluation.summary import Z_95, describe_when, make_verdict, mean_over_clusters, wilson_interval
from tests.unit.training.evaluation.task_set_rows import AFTER, BEFORE, task_set_rows


def test_a_task_set_played_once_a_task_has_wilsons_interval() -> None:
    verdict = make_verdict(BEFORE + AFTER, "test")
    assert verdict.before is not None
    assert (verdict.before.value, verdict.before.interval) == (0.1, wilson_interval(1, 10))
    assert (verdict.after.value, verdict.after.interval) == (0.9, wilson_interval(9, 10))
    assert (verdict.after.number, verdict.after.tasks, verdict.after.rollouts) == (8, 10, 10)
    # Wilson, z = 1.96: 1 of 10 gives 0.018 to 0.404, 9 of 10 the mirror image.
    assert [round(bound, 3) for bound in verdict.before.interval] == [0.018, 0.404]
    assert [round(bound, 3) for bound in verdict.after.interval] == [0.596, 0.982]
    assert verdict.is_clear


def test_rollouts_at_one_task_count_for_less_than_tasks() -> None:
    again = [replace(row, seed=1, success=1.0 - (row.success or 0.0)) for row in AFTER]
    verdict = make_verdict(AFTER + again, "test")
    value, interval = mean_over_clusters([[row.success or 0.0, 1.0 - (row.success or 0.0)] for row in AFTER])
    assert (verdict.after.value, verdict.after.interval) == (value, interval)
    assert (verdict.after.tasks, verdict.after.rollouts) == (10, 20)


def test_families_are_the_tags_of_the_last_evaluation() -> None:
    verdict = make_verdict(BEFORE + AFTER, "test")
    assert [family.name for family in verdict.categories] == ["even", "late", "odd"]
    even, late, odd = verdict.categories
    assert even.before is not None
    assert (even.before.value, even.after.value, even.after.tasks) == (0.2, 1.0, 5)
    assert even.after.interval == wilson_interval(5, 5)
    assert (odd.after.value, late.after.value) == (0.8, 0.8)


def test_a_family_that_came_later_has_no_before() -> None:
    fresh = [replace(row, tags="new") for row in AFTER]
    (family,) = make_verdict(BEFORE + fresh, "test").categories
    assert family.before is None
    assert family.after.value == 0.9


def test_without_success_the_mean_outcome_speaks() -> None:
    verdict = make_verdict(task_set_rows(0, [None] * 4) + task_set_rows(3, [None] * 4), "test")
    assert verdict.measure == "outcome"
    # Outcomes 0, 0.5, 1, 1.5: mean 0.75, sample variance 1.25 / 3.
    half = Z_95 * math.sqrt(1.25 / 3 / 4)
    assert verdict.after.value == 0.75
    assert verdict.after.interval == pytest.approx((0.75 - half, 0.75 + half), abs=1e-15)


def test_rollouts_that_do_not_say_leave_the_share() -> None:
    verdict = make_verdict(task_set_rows(0, [1.0, None, 0.0, None]), "test")
    assert (verdict.measure, verdict.after.value, verdict.after.tasks) == ("success", 0.5, 2)


def test_when_a_score_was_taken() -> None:
    scores = make_verdict(BEFORE + AFTER, "test").scores
    assert [describe_when(score) for score in scores] == ["before training", "after update 8"]
