"""Two runs side by side: settings by path, metrics at the last update that both have, evaluations."""

from __future__ import annotations

from pathlib import Path

from groupwise.parts.part import flatten_settings
from groupwise.store.journal import Journal
from groupwise.training.run_reader import (
    MetricDifference,
    RunFolder,
    SettingDifference,
    compare_runs,
    find_setting_differences,
)
from tests.unit.report.run_folders import play_task_set, write_run


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
    assert find_setting_differences(first, second) == [
        SettingDifference(path="seed", first=0, second=1),
        SettingDifference(path="algorithm.terms[0].by.kind", first="by_task", second="by_history"),
        SettingDifference(path="model.hidden", first=32, second=64),
        SettingDifference(path="algorithm.terms[1].weight", first=None, second=2.0),
        SettingDifference(path="model.layers", first=None, second=2),
    ]
    assert find_setting_differences(first, first) == []


def test_settings_lie_flat_under_their_paths() -> None:
    nested = {"a": {"b": [1, 2], "c": [{"d": True}, {"d": []}]}, "e": ""}
    assert flatten_settings(nested) == {"a.b": [1, 2], "a.c[0].d": True, "a.c[1].d": [], "e": ""}


def test_two_runs_are_compared_at_the_last_update_that_both_have(tmp_path: Path) -> None:
    long = write_run(tmp_path / "long", updates=3, tasks=2, rollouts=2, evaluations=(0, 3), evaluation_tasks=8)
    short = write_run(tmp_path / "short", updates=2, tasks=2, rollouts=2, seed=5)
    with Journal(short / "journal.sqlite") as journal:
        journal.write_evaluation(play_task_set(2, tasks=8, skill=0.3))
        journal.write_evaluation(play_task_set(2, tasks=6, skill=0.3, split="validation"))
    with RunFolder(long) as one, RunFolder(short) as other:
        differences = compare_runs(one, other)
        assert differences.settings == [SettingDifference(path="seed", first=0, second=5)]
        assert differences.number == 2
        loss = next(metric for metric in differences.metrics if metric.name == "loss/total")
        sides = (one.metrics["loss/total"][2], other.metrics["loss/total"][2])
        assert loss == MetricDifference(name="loss/total", first=sides[0], second=sides[1])
        assert loss.change == sides[1] - sides[0]
        (score,) = differences.scores
        assert (score.name, score.first.number, score.second.number, score.is_one_task_set) == ("test", 3, 2, True)


def test_runs_that_share_no_update_still_compare_their_settings(tmp_path: Path) -> None:
    first, second = write_run(tmp_path / "a", updates=0), write_run(tmp_path / "b", updates=0, seed=1)
    with RunFolder(first) as one, RunFolder(second) as other:
        differences = compare_runs(one, other)
    assert (differences.number, differences.metrics, differences.scores) == (None, [], [])
    assert [setting.path for setting in differences.settings] == ["seed"]
