"""The arithmetic of the overlap benchmark: equal steps, intervals, ratios; and runs that take turns."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Any

import pytest

from benchmarks.overlap.processor import TICKS, measure_children
from benchmarks.overlap.summary import (
    choose_marks,
    compare_seconds,
    compare_success,
    interpolate_solved,
    summarise_seconds,
)
from benchmarks.overlap.turns import TurnTaker, run_in_turns
from benchmarks.overlap.variants import VARIANTS, describe_run
from groupwise.training.config.run_file import decode_run


def evaluate(steps: int, solved: str) -> dict[str, Any]:
    return {"total_steps": steps, "solved": solved}


def time_update(seconds: float, *, trainer: float = 1.0, engine: float = 1.0, **stages: float) -> dict[str, Any]:
    cores = {"trainer_core_seconds": trainer, "engine_core_seconds": engine}
    return {"seconds": seconds, "stages": stages, **cores}


RUNS = [
    {"variant": "lag 0", "seed": 0, "evaluations": [evaluate(0, "0000"), evaluate(90, "1100")]},
    {"variant": "lag 0", "seed": 1, "evaluations": [evaluate(0, "0000"), evaluate(100, "1110")]},
    {"variant": "lag 1", "seed": 0, "evaluations": [evaluate(0, "0000"), evaluate(180, "1111")]},
    {"variant": "lag 1", "seed": 1, "evaluations": [evaluate(0, "0000"), evaluate(90, "1100"), evaluate(200, "0000")]},
]


def test_variants_are_compared_at_steps_that_all_of_them_reached() -> None:
    assert choose_marks(RUNS) == [0, 30, 60, 90]


def test_between_evaluations_success_lies_on_the_line_that_joins_them() -> None:
    curve = [evaluate(0, "01"), evaluate(100, "11"), evaluate(200, "10")]
    assert [interpolate_solved(curve, steps) for steps in (0, 50, 100, 150, 200)] == [
        [0, 1],
        [0.5, 1],
        [1, 1],
        [1, 0.5],
        [1, 0],
    ]
    with pytest.raises(AssertionError, match="no evaluation"):
        interpolate_solved(curve, 201)


def test_success_at_equal_steps_is_not_that_of_the_last_evaluation() -> None:
    row = compare_success(RUNS, ["lag 0", "lag 1"], 90)
    assert row["variants"]["lag 1"]["by_seed"] == {0: 0.5, 1: 0.5}  # seed 0 is halfway to its end, seed 1 falls later
    assert row["variants"]["lag 0"]["by_seed"] == {0: 0.5, 1: pytest.approx(0.675)}
    more = row["more"]["lag 1"]
    assert more["by_seed"] == {0: 0.0, 1: pytest.approx(-0.175)}
    assert more["mean"] == pytest.approx(-0.0875)
    assert more["interval"][0] < more["mean"] < more["interval"][1]


def test_the_first_update_and_the_last_are_not_timed() -> None:
    updates = [
        time_update(100.0, rollout=90.0),
        time_update(2.0, rollout=1.0, learn=0.5),
        time_update(4.0, rollout=3.0, learn=0.5),
        time_update(6.0, rollout=5.0),
        time_update(200.0, rollout=9.0),
    ]
    summary = summarise_seconds([{"updates": updates}])
    assert (summary["updates"], summary["seconds"]) == (3, 4.0)
    assert summary["stages"] == {"rollout": 3.0, "learn": 0.5}


def test_ratios_are_of_neighbours_and_not_of_medians() -> None:
    quiet, busy = time_update(2.0), time_update(20.0)
    baseline = [quiet, quiet, busy, busy, quiet]
    variant = [
        {**update, "seconds": update["seconds"] / 2, "engine_core_seconds": 2.0, "trainer_core_seconds": 2.0}
        for update in baseline
    ]
    runs = [{"variant": "lag 0", "seed": 3, "updates": baseline}, {"variant": "lag 1", "seed": 3, "updates": variant}]
    ratios = compare_seconds(runs, "lag 1")
    assert ratios["seconds"] == ratios["seconds_lower_quartile"] == ratios["seconds_upper_quartile"] == 0.5
    assert ratios["core_seconds"] == 2.0


def test_variants_are_runs_that_differ_in_their_lag_alone() -> None:
    options = {"seed": 2, "updates": 3, "tasks": 4, "task_set": 5, "every": 1}
    runs = [describe_run(Path("start"), variant=variant, **options) for variant in VARIANTS]
    assert [decode_run(settings).rollout.lag for settings in runs] == [0, 1]
    assert [settings["rollout"].pop("lag") for settings in runs] == [0, 1]
    assert runs[0] == runs[1]


def test_runs_take_turns_update_by_update_and_the_last_goes_on_alone() -> None:
    happened: list[str] = []

    def make_job(name: str, updates: int) -> Any:
        def job(turns: TurnTaker) -> str:
            happened.append(f"{name} opens")
            for number in range(1, updates + 1):
                for stage in ("rollout", "learn"):
                    turns.on_stage(stage, number)
                happened.append(f"{name}{number}")
            return name

        return job

    assert run_in_turns({"a": make_job("a", 1), "b": make_job("b", 3)}) == {"a": "a", "b": "b"}
    assert happened == ["a opens", "b opens", "a1", "b1", "b2", "b3"]


def test_a_run_that_fails_lets_the_other_end_and_is_reported() -> None:
    ended = threading.Event()

    def fail(turns: TurnTaker) -> None:
        raise ValueError("no engine")

    def end(turns: TurnTaker) -> None:
        turns.on_stage("rollout", 1)
        ended.set()

    with pytest.raises(ValueError, match="no engine"):
        run_in_turns({"fails": fail, "ends": end})
    assert ended.is_set()


def test_processor_seconds_are_those_of_processes_below_this_one(tmp_path: Path) -> None:
    def write(pid: int, parent: int, user: int, system: int) -> None:
        (tmp_path / str(pid)).mkdir()
        words = f"{pid} (a (strange) name) S {parent} 0 0 0 0 0 0 0 0 0 {user} {system} 0 0"
        (tmp_path / str(pid) / "stat").write_text(words)

    write(10, os.getpid(), 3 * TICKS, TICKS)
    write(11, 10, 5 * TICKS, 0)
    write(12, 1, 1000 * TICKS, 0)
    (tmp_path / "meminfo").mkdir()
    (tmp_path / "13").mkdir()  # it ended while it was read
    assert measure_children(tmp_path) == 9.0
