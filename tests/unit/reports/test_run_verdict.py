"""What a run achieved: intervals as evaluation computes them, families, and when nothing can be said."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from groupwise.core.journal.journal import Evaluated, Journal
from groupwise.evaluation.intervals import Z_95, mean_over_clusters, wilson_interval
from groupwise.reports.run.differences import (
    MetricDifference,
    SettingDifference,
    compare,
    flat_settings,
    setting_differences,
)
from groupwise.reports.run.page.headline_and_verdict import sentence
from groupwise.reports.run.run_folder import RunFolder
from groupwise.reports.run.verdict import every_verdict, rollout_success, verdict, verdict_on, when
from tests.unit.reports.run_folders import evaluated, write_run


def rows(number: int, successes: Sequence[float | None], *, split: str = "test", panel: str = "p") -> list[Evaluated]:
    return [
        Evaluated(
            number=number,
            split=split,
            seed=0,
            task=f"t{i}",
            attempt=0,
            panel=panel,
            tags="even" if i % 2 == 0 else "odd,late",
            stop="terminated",
            success=success,
            outcome=0.5 * i,
            steps=i,
        )
        for i, success in enumerate(successes)
    ]


BEFORE = rows(0, [1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0])
AFTER = rows(8, [1.0] * 9 + [0.0])


def test_a_panel_played_once_a_task_has_wilsons_interval() -> None:
    found = verdict_on(BEFORE + AFTER, "test")
    assert found.before is not None
    assert (found.before.value, found.before.interval) == (0.1, wilson_interval(1, 10))
    assert (found.after.value, found.after.interval) == (0.9, wilson_interval(9, 10))
    assert (found.after.number, found.after.tasks, found.after.attempts) == (8, 10, 10)
    # Wilson, z = 1.96: 1 of 10 gives 0.018 to 0.404, 9 of 10 the mirror image.
    assert [round(bound, 3) for bound in found.before.interval] == [0.018, 0.404]
    assert [round(bound, 3) for bound in found.after.interval] == [0.596, 0.982]
    assert found.is_clear
    assert sentence(found) == (
        "Success on 10 tasks of the test panel rose by 80.0 points; the 95\u202f% intervals lie apart."
    )


def test_attempts_at_one_task_count_for_less_than_tasks() -> None:
    again = [replace(row, seed=1, success=1.0 - (row.success or 0.0)) for row in AFTER]
    found = verdict_on(AFTER + again, "test")
    value, interval = mean_over_clusters([[row.success or 0.0, 1.0 - (row.success or 0.0)] for row in AFTER])
    assert (found.after.value, found.after.interval) == (value, interval)
    assert (found.after.tasks, found.after.attempts) == (10, 20)
    assert sentence(found) == (
        "Success on 10 tasks of the test panel (20 attempts), after update 8. "
        "There is no second evaluation to compare it with."
    )


def test_families_are_the_tags_of_the_last_evaluation() -> None:
    found = verdict_on(BEFORE + AFTER, "test")
    assert [family.name for family in found.families] == ["even", "late", "odd"]
    even, late, odd = found.families
    assert even.before is not None
    assert (even.before.value, even.after.value, even.after.tasks) == (0.2, 1.0, 5)
    assert even.after.interval == wilson_interval(5, 5)
    assert (odd.after.value, late.after.value) == (0.8, 0.8)


def test_a_family_that_came_later_has_no_before() -> None:
    fresh = [replace(row, tags="new") for row in AFTER]
    (family,) = verdict_on(BEFORE + fresh, "test").families
    assert family.before is None
    assert family.after.value == 0.9


def test_overlapping_intervals_are_no_progress() -> None:
    found = verdict_on(BEFORE + rows(8, [1.0, 1.0] + [0.0] * 8), "test")
    assert not found.is_clear
    assert sentence(found) == (
        "Success on 10 tasks of the test panel rose by 10.0 points; "
        "the 95\u202f% intervals overlap, so this may be chance."
    )
    worse = verdict_on(AFTER + rows(9, [row.success for row in BEFORE]), "test")
    assert sentence(worse) == (
        "Success on 10 tasks of the test panel fell by 80.0 points; the 95\u202f% intervals lie apart."
    )
    same = verdict_on(BEFORE + rows(8, [row.success for row in BEFORE]), "test")
    assert sentence(same) == (
        "Success on 10 tasks of the test panel did not change; the 95\u202f% intervals overlap, so this may be chance."
    )


def test_evaluations_on_different_tasks_cannot_be_compared() -> None:
    found = verdict_on(BEFORE + rows(8, [1.0] * 10, panel="q"), "test")
    assert not found.is_one_panel
    assert sentence(found) == (
        "Success before training and after update 8, on different tasks: the two cannot be compared."
    )


def test_without_success_the_mean_outcome_speaks() -> None:
    found = verdict_on(rows(0, [None] * 4) + rows(3, [None] * 4), "test")
    assert found.measure == "outcome"
    # Outcomes 0, 0.5, 1, 1.5: mean 0.75, sample variance 1.25 / 3.
    half = Z_95 * math.sqrt(1.25 / 3 / 4)
    assert found.after.value == 0.75
    assert found.after.interval == pytest.approx((0.75 - half, 0.75 + half), abs=1e-15)


def test_attempts_that_do_not_say_leave_the_share() -> None:
    found = verdict_on(rows(0, [1.0, None, 0.0, None]), "test")
    assert (found.measure, found.after.value, found.after.tasks) == ("success", 0.5, 2)


def test_the_split_is_the_one_that_the_settings_name(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", updates=1, tasks=1, attempts=2)
    with Journal(folder / "journal.sqlite") as journal:
        journal.write_evaluation(rows(0, [1.0], split="train"))
        journal.write_evaluation(rows(1, [1.0], split="train"))
    with RunFolder(folder) as run:
        found = verdict(run)
        assert found is not None
        assert (found.split, len(found.scores)) == ("train", 2)
    with Journal(folder / "journal.sqlite") as journal:
        journal.write_evaluation(rows(0, [0.0]))
    with RunFolder(folder) as run:
        found = verdict(run)
        assert found is not None
        assert found.split == "test"
        assert [each.split for each in every_verdict(run)] == ["test", "train"]


def test_a_run_that_was_never_evaluated_has_no_verdict(tmp_path: Path) -> None:
    with RunFolder(write_run(tmp_path / "run", updates=2, tasks=2, attempts=2)) as run:
        assert verdict(run) is None
        assert rollout_success(run) == tuple(run.metrics["rollout/success"][number] for number in (1, 2))
    with RunFolder(write_run(tmp_path / "none", updates=0)) as run:
        assert rollout_success(run) is None


def test_when_a_score_was_taken() -> None:
    scores = verdict_on(BEFORE + AFTER, "test").scores
    assert [when(score) for score in scores] == ["before training", "after update 8"]


def test_settings_differ_by_path_and_a_part_of_another_kind_counts_once() -> None:
    first = {
        "seed": 0,
        "same": {"x": 1},
        "algorithm": {"terms": [{"weight": 1.0, "by": {"kind": "by_task"}}]},
        "model": {"kind": "tiny", "hidden": 32},
    }
    second = {
        "seed": 1,
        "same": {"x": 1},
        "algorithm": {"terms": [{"weight": 1.0, "by": {"kind": "by_history", "depth": 2}}, {"weight": 2.0}]},
        "model": {"kind": "tiny", "hidden": 64, "layers": 2},
    }
    assert setting_differences(first, second) == [
        SettingDifference(path="seed", first=0, second=1),
        SettingDifference(path="algorithm.terms[0].by.kind", first="by_task", second="by_history"),
        SettingDifference(path="model.hidden", first=32, second=64),
        SettingDifference(path="algorithm.terms[1].weight", first=None, second=2.0),
        SettingDifference(path="model.layers", first=None, second=2),
    ]
    assert setting_differences(first, first) == []


def test_settings_lie_flat_under_their_paths() -> None:
    nested = {"a": {"b": [1, 2], "c": [{"d": True}, {"d": []}]}, "e": ""}
    assert flat_settings(nested) == {"a.b": [1, 2], "a.c[0].d": True, "a.c[1].d": [], "e": ""}


def test_two_runs_are_compared_at_the_last_update_that_both_have(tmp_path: Path) -> None:
    long = write_run(tmp_path / "long", updates=3, tasks=2, attempts=2, evaluations=(0, 3), evaluation_tasks=8)
    short = write_run(tmp_path / "short", updates=2, tasks=2, attempts=2, seed=5)
    with Journal(short / "journal.sqlite") as journal:
        journal.write_evaluation(evaluated(2, tasks=8, skill=0.3))
        journal.write_evaluation(evaluated(2, tasks=6, skill=0.3, split="validation"))
    with RunFolder(long) as one, RunFolder(short) as other:
        found = compare(one, other)
        assert found.settings == [SettingDifference(path="seed", first=0, second=5)]
        assert found.number == 2
        loss = next(metric for metric in found.metrics if metric.name == "loss/total")
        sides = (one.metrics["loss/total"][2], other.metrics["loss/total"][2])
        assert loss == MetricDifference(name="loss/total", first=sides[0], second=sides[1])
        assert loss.change == sides[1] - sides[0]
        (score,) = found.scores
        assert (score.split, score.first.number, score.second.number, score.is_one_panel) == ("test", 3, 2, True)


def test_runs_that_share_no_update_still_compare_their_settings(tmp_path: Path) -> None:
    first, second = write_run(tmp_path / "a", updates=0), write_run(tmp_path / "b", updates=0, seed=1)
    with RunFolder(first) as one, RunFolder(second) as other:
        found = compare(one, other)
    assert (found.number, found.metrics, found.scores) == (None, [], [])
    assert [setting.path for setting in found.settings] == ["seed"]
