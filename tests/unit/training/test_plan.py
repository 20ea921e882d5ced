"""The plan of a sweep: written, read, gone on with, extended, refused."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

from groupwise import ConfigError, FileError
from groupwise.store.run_folder import SWEEP_PLAN
from groupwise.training.sweep import SweepPlan, extend_plan, plan_sweep, read_plan, write_plan, write_run_file
from tests.unit.cli.run_files import SMALL

METHODS = "algorithm.method=dr_grpo,rloo"


def make_plan(folder: Path, *settings: str, num_seeds: int = 2, text: str = SMALL) -> SweepPlan:
    file = folder / "small.toml"
    file.write_text(text, encoding="utf-8")
    return plan_sweep(file, settings, num_seeds=num_seeds, threads=3)


def test_a_plan_is_read_back_as_it_was_written(tmp_path: Path) -> None:
    plan = make_plan(tmp_path, METHODS)
    write_plan(plan, tmp_path)
    assert read_plan(tmp_path) == plan
    assert [variant.name for variant in plan.variants] == ["dr_grpo", "rloo"]
    assert read_plan(tmp_path / "elsewhere") is None


def test_runs_come_seed_by_seed_and_their_files_say_everything(tmp_path: Path) -> None:
    plan = make_plan(tmp_path, METHODS, text=f"seed = 7\n{SMALL}")
    runs = plan.list_runs(tmp_path / "out")
    assert [(run.variant, run.seed) for run in runs] == [("dr_grpo", 7), ("rloo", 7), ("dr_grpo", 8), ("rloo", 8)]
    for run in runs:
        write_run_file(plan, run)
    from groupwise.training.config.run_file import load_run

    config = load_run(tmp_path / "out" / "rloo" / "seed8.toml")
    assert config == plan.load_config(runs[-1])
    assert (config.seed, config.threads, config.training.updates) == (8, 3, 2)


def test_runs_know_what_their_algorithm_was_made_by(tmp_path: Path) -> None:
    plan = make_plan(tmp_path, METHODS)
    assert [variant.settings["made_by"] for variant in plan.variants] == [{"method": "dr_grpo"}, {"method": "rloo"}]
    assert plan.load_config(plan.list_runs(tmp_path)[1]).made_by == {"method": "rloo"}
    spelled = {name: value for name, value in plan.variants[0].settings.items() if name != "made_by"}
    older = dataclasses.replace(
        plan, variants=(dataclasses.replace(plan.variants[0], settings=spelled), plan.variants[1])
    )
    assert extend_plan(older, plan, tmp_path) == (older, ""), "how it was written is no other setting"


def test_threads_of_the_run_file_stay(tmp_path: Path) -> None:
    [variant] = make_plan(tmp_path, text=f"threads = 2\n{SMALL}").variants
    assert variant.settings["threads"] == 2


def test_the_same_plan_adds_nothing(tmp_path: Path) -> None:
    plan = make_plan(tmp_path, METHODS)
    assert extend_plan(plan, make_plan(tmp_path, METHODS), tmp_path) == (plan, "")


def test_a_setting_that_a_newer_version_has_is_no_change(tmp_path: Path) -> None:
    plan = make_plan(tmp_path)
    [variant] = plan.variants
    older = {name: value for name, value in variant.settings.items() if name != "task_set"}
    assert len(older) < len(variant.settings)
    recorded = dataclasses.replace(plan, variants=(dataclasses.replace(variant, settings=older),))
    assert extend_plan(recorded, plan, tmp_path) == (recorded, "")


def test_more_seeds_and_more_values_extend_a_sweep(tmp_path: Path) -> None:
    recorded = make_plan(tmp_path, METHODS)
    wanted = make_plan(tmp_path, "algorithm.method=grpo,dr_grpo,rloo", num_seeds=3)
    plan, added = extend_plan(recorded, wanted, tmp_path)
    assert added == "grpo, seed 2"
    assert [variant.name for variant in plan.variants] == ["dr_grpo", "rloo", "grpo"]
    assert plan.seeds == (0, 1, 2)


def test_variants_keep_their_names_when_a_setting_gets_a_second_value(tmp_path: Path) -> None:
    recorded = make_plan(tmp_path, METHODS, "training.tasks=2")
    wanted = make_plan(tmp_path, METHODS, "training.tasks=2,3")
    assert [variant.name for variant in wanted.variants] == [
        "dr_grpo,tasks=2",
        "dr_grpo,tasks=3",
        "rloo,tasks=2",
        "rloo,tasks=3",
    ]
    plan, added = extend_plan(recorded, wanted, tmp_path)
    assert [variant.name for variant in plan.variants] == ["dr_grpo", "rloo", "dr_grpo,tasks=3", "rloo,tasks=3"]
    assert added == "dr_grpo,tasks=3, rloo,tasks=3"
    assert [variant.settings for variant in plan.variants[:2]] == [variant.settings for variant in recorded.variants]
    assert plan.variants[0].choices == {"algorithm.method": "dr_grpo", "training.tasks": "2"}
    assert extend_plan(plan, wanted, tmp_path) == (plan, ""), "asked again, it adds nothing"


def test_a_sweep_of_one_variant_gets_a_second(tmp_path: Path) -> None:
    recorded = make_plan(tmp_path)
    tasks = recorded.variants[0].settings["training"]["tasks"]
    plan, added = extend_plan(recorded, make_plan(tmp_path, f"training.tasks={tasks},{tasks + 1}"), tmp_path)
    assert [variant.name for variant in plan.variants] == [recorded.variants[0].name, f"tasks={tasks + 1}"]
    assert added == f"tasks={tasks + 1}"


@pytest.mark.parametrize(
    ("settings", "num_seeds", "text", "message"),
    [
        (
            ["algorithm.method=dr_grpo"],
            2,
            SMALL,
            "also has rloo; include these too, or give another folder with --out",
        ),
        ([METHODS], 1, SMALL, "also has seed 1; include these too, or give another folder with --out"),
        (
            [METHODS],
            2,
            SMALL.replace("updates = 2", "updates = 3"),
            "whose variant 'dr_grpo' has training.updates = 2, but now it is 3; change it back, or give another "
            "folder with --out",
        ),
    ],
)
def test_another_sweep_is_refused(tmp_path: Path, settings: list[str], num_seeds: int, text: str, message: str) -> None:
    recorded = make_plan(tmp_path, METHODS)
    with pytest.raises(ConfigError) as raised:
        extend_plan(recorded, make_plan(tmp_path, *settings, num_seeds=num_seeds, text=text), Path("out"))
    assert str(raised.value) == f"out holds a sweep that {message}".replace("that whose", "whose")


def test_runs_that_are_never_evaluated_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as raised:
        make_plan(tmp_path, "evaluation.tasks=0,2")
    assert str(raised.value) == (
        f"{tmp_path / 'small.toml'}: evaluation.tasks is 0 in 'tasks=0', but a sweep compares evaluations; raise it"
    )


@pytest.mark.parametrize(
    "content",
    [
        "[]",
        "{",
        "[" * 100_000,
        json.dumps({"schema": 1}),
        json.dumps(
            {"schema": 2, "threads": 1, "seeds": [0], "variants": [{"name": "../x", "choices": {}, "settings": {}}]}
        ),
    ],
)
def test_what_is_no_plan_is_refused_in_one_sentence(tmp_path: Path, content: str) -> None:
    (tmp_path / SWEEP_PLAN).write_text(content, encoding="utf-8")
    with pytest.raises(FileError, match=r"sweep\.json: cannot be read as the plan of a sweep \(.*\); give the folder"):
        read_plan(tmp_path)
