"""Several runs: put together into variants, summed up over seeds, and their curves along what training cost."""

from __future__ import annotations

from pathlib import Path

import pytest

from groupwise import ConfigError
from groupwise.report.runs import (
    VariantRuns,
    find_axes,
    group_runs,
    make_metric_curves,
    make_score_curves,
    read_run,
    sum_up,
)
from tests.unit.report.several_runs import write_small_run


def read_variants(*folders: Path) -> list[VariantRuns]:
    return group_runs([read_run(folder) for folder in folders])


def test_runs_that_differ_in_their_seed_are_one_variant(tmp_path: Path) -> None:
    folders = [
        write_small_run(tmp_path / f"{method}{seed}", seed=seed, method=method, threads=seed + 1)
        for method in ("grpo", "rloo")
        for seed in (1, 0)
    ]
    variants = read_variants(*folders)
    assert [(variant.name, [run.seed for run in variant.runs]) for variant in variants] == [
        ("grpo", [0, 1]),
        ("rloo", [0, 1]),
    ]


def test_variants_of_one_method_are_named_by_what_differs(tmp_path: Path) -> None:
    folders = [write_small_run(tmp_path / str(tasks), training={"updates": 3, "tasks": tasks}) for tasks in (2, 8)]
    assert [variant.name for variant in read_variants(*folders)] == ["grpo, tasks=2", "grpo, tasks=8"]


def test_variants_that_differ_in_much_are_named_by_their_folders(tmp_path: Path) -> None:
    first = write_small_run(tmp_path / "one")
    second = write_small_run(tmp_path / "two", rollout=dict.fromkeys("abcd", 1))
    assert [variant.name for variant in read_variants(first, second)] == ["one", "two"]


def test_results_over_seeds(tmp_path: Path) -> None:
    better = [
        write_small_run(tmp_path / f"b{seed}", seed=seed, method="rloo", wins={0: 1, 2: 4, 3: 3}) for seed in range(4)
    ]
    worse = [
        write_small_run(tmp_path / f"w{seed}", seed=seed, wins={0: 1, 2: seed, 3: min(seed, 2)}) for seed in range(4)
    ]
    results = sum_up(read_variants(*worse, *better))
    assert results is not None
    low, high = results.variants
    assert [seed.final for seed in low.seeds] == [0.0, 0.25, 0.5, 0.5]
    assert low.final.value == pytest.approx(0.375)  # of four scores the lowest and the highest are left out
    assert [(seed.best, seed.best_update) for seed in low.seeds] == [(0.25, 0), (0.25, 0), (0.5, 2), (0.75, 2)]
    assert (high.final.value, high.final.low, high.final.high) == (0.75, 0.75, 0.75)
    assert high.best.value == 1.0
    [pair] = results.improvements
    assert (pair.variant, pair.over, pair.probability.value) == ("rloo", "grpo", 1.0)
    assert (results.tasks, results.split, results.measure, results.missing) == (4, "test", "success", ())


def test_equal_variants_are_even_and_a_run_without_evaluation_is_named(tmp_path: Path) -> None:
    folders = [write_small_run(tmp_path / method, method=method) for method in ("grpo", "rloo")]
    folders.append(write_small_run(tmp_path / "late", method="rloo", seed=5, wins={}))
    results = sum_up(read_variants(*folders))
    assert results is not None
    assert results.improvements[0].probability.value == 0.5
    assert results.improvements[0].variant == "grpo"
    assert results.missing == ("rloo seed 5",)


def test_without_any_evaluation_there_are_no_results(tmp_path: Path) -> None:
    assert sum_up(read_variants(write_small_run(tmp_path / "run", wins={}))) is None


def test_different_task_sets_are_refused(tmp_path: Path) -> None:
    first = write_small_run(tmp_path / "one", task_set="a" * 64)
    second = write_small_run(tmp_path / "two", seed=1, task_set="b" * 64)
    with pytest.raises(ConfigError) as raised:
        sum_up(read_variants(first, second))
    assert str(raised.value) == (
        f"{first} and {second} were evaluated on different tasks (split test, hash aaaaaaaaaaaa and split test, "
        "hash bbbbbbbbbbbb), so they cannot be compared; report them one by one, or evaluate both on the same tasks"
    )


def test_success_and_outcome_are_not_compared(tmp_path: Path) -> None:
    first = write_small_run(tmp_path / "one")
    second = write_small_run(tmp_path / "two", seed=1, with_success=False)
    with pytest.raises(ConfigError) as raised:
        sum_up(read_variants(first, second))
    assert str(raised.value) == (
        f"{first} has success and {second} has outcome, which cannot be compared; report them one by one"
    )


def test_points_lie_where_the_runs_had_come_to_on_average(tmp_path: Path) -> None:
    variants = read_variants(*(write_small_run(tmp_path / str(seed), seed=seed) for seed in (0, 2)))
    axes = find_axes(variants)
    assert axes == ["updates", "steps", "tokens", "time"]
    [curve] = make_metric_curves(variants, "rollout/success", axes)
    assert [point.mean.value for point in curve.points] == pytest.approx([0.11, 0.21, 0.31])
    assert curve.points[1].places == {"updates": 2.0, "steps": 22.0, "tokens": 200.0, "time": 6.0}
    assert (curve.points[0].mean.low, curve.points[0].mean.high) == pytest.approx((0.1, 0.12))
    [scores] = make_score_curves(variants, axes)
    assert [(point.number, point.mean.value) for point in scores.points] == [(0, 0.25), (3, 0.5)]
    assert scores.points[0].places == {"updates": 0.0, "steps": 0.0, "tokens": 0.0, "time": 0.0}


def test_a_curve_goes_as_far_as_every_seed_does(tmp_path: Path) -> None:
    variants = read_variants(
        write_small_run(tmp_path / "0"), write_small_run(tmp_path / "1", seed=1, updates=2, wins={0: 1})
    )
    [curve] = make_metric_curves(variants, "rollout/return", ["updates"])
    assert [point.number for point in curve.points] == [1, 2]
    [scores] = make_score_curves(variants, ["updates"])
    assert [point.number for point in scores.points] == [0]


def test_an_axis_that_a_run_does_not_know_is_left_out(tmp_path: Path) -> None:
    variants = read_variants(write_small_run(tmp_path / "0"), write_small_run(tmp_path / "1", seed=1, with_costs=False))
    assert find_axes(variants) == ["updates"]


def test_a_long_curve_is_averaged_and_thinned(tmp_path: Path) -> None:
    variants = read_variants(write_small_run(tmp_path / "0", updates=130, wins={}))
    [curve] = make_metric_curves(variants, "rollout/return", ["updates"])
    assert curve.window == 5
    assert len(curve.points) == 60
    assert (curve.points[0].number, curve.points[-1].number) == (1, 130)
