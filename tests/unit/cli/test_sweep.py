"""`groupwise sweep`: what it prints and refuses; one tiny sweep in real processes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.unit.cli.calls import words
from tests.unit.cli.conftest import Run
from tests.unit.cli.run_files import SMALL, small

pytest.importorskip("torch")


def test_a_sweep_trains_tells_and_is_not_trained_twice(groupwise: Run, tmp_path: Path) -> None:
    file = small(tmp_path)
    options = ("--seeds", "2", "--set", "device=cpu", "--jobs", "2", "--out", "out")
    ran = groupwise("sweep", file, *options)
    assert ran.status == 0, ran.err
    assert "2 runs: 1 variant of 2 seeds; 2 to train, 2 at a time (--jobs)" in ran.err
    assert "small seed 1 is finished" in ran.err
    lines = words(ran.out)
    assert lines[0].startswith("success on 2 tasks of split train (hash ")
    assert lines[2] == "variant seeds last best last, lowest to highest"
    assert lines[3].startswith("small 2 ")
    stamps = {path: path.stat().st_mtime_ns for path in (tmp_path / "out").rglob("journal.sqlite")}
    assert len(stamps) == 2

    again = groupwise("sweep", file, *options, "--json")
    assert "all of them finished" in again.err
    assert {path: path.stat().st_mtime_ns for path in stamps} == stamps
    shown = json.loads(again.out)
    assert shown == json.loads((tmp_path / "out" / "results.json").read_text(encoding="utf-8"))
    assert [seed["seed"] for seed in shown["variants"][0]["seeds"]] == [0, 1]
    assert shown["variants"][0]["choices"] == {"device": "cpu"}
    assert shown["missing"] == []

    listed = groupwise("sweep", file, "--seeds", "3", *options[2:], "--dry-run")
    assert "the sweep in out is extended: seed 2" in listed.err
    assert words(listed.out) == [
        "small seed 0 out/small/seed0 finished",
        "small seed 1 out/small/seed1 finished",
        "small seed 2 out/small/seed2",
    ]


@pytest.mark.more
def test_a_run_that_cannot_train_fails_in_a_line_and_the_sweep_goes_on(groupwise: Run, tmp_path: Path) -> None:
    file = small(tmp_path)
    ran = groupwise(
        "sweep", file, "--seeds", "1", "--set", "device=cpu,nonsense", "--jobs", "1", "--out", "out", "--json"
    )
    assert ran.status == 1
    [line] = [line for line in ran.err.splitlines() if "failed" in line]
    assert line.startswith("device=nonsense seed 0 failed: error: ")
    assert json.loads(ran.out)["missing"] == ["device=nonsense seed 0"]


def test_methods_with_other_options_are_swept_over_one_file(groupwise: Run, tmp_path: Path) -> None:
    text = SMALL.replace('method = "dr_grpo"', 'method = "hgpo"\ndepth = 3')
    (tmp_path / "file.toml").write_text(text, encoding="utf-8")
    sweep = ("sweep", "file.toml", "--seeds", "2", "--set", "algorithm.method=grpo,hgpo", "--dry-run")
    ran = groupwise(*sweep)
    assert ran.status == 0, ran.err
    notes = [line for line in ran.err.splitlines() if line.startswith("note")]
    assert notes == ["note: the method 'grpo' does not have algorithm.depth: left out"]
    assert [line.split()[0] for line in ran.out.splitlines()] == ["grpo", "hgpo", "grpo", "hgpo"]
    ran = groupwise(*sweep, "--unset", "algorithm.depth")
    assert ran.status == 0, ran.err
    assert "note" not in ran.err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--seeds", "0"), "Invalid value for '--seeds': Input should be greater than or equal to 1"),
        (("--jobs", "0"), "Invalid value for '--jobs': Input should be greater than or equal to 1"),
        (
            ("--set", "training.updtes=1,2"),
            "small.toml with --set training.updtes=1: training.updtes: unknown setting; did you mean 'updates'?",
        ),
        (
            ("--set", "training.updates=1,none"),
            "small.toml with --set training.updates=none: training.updates: expected an integer, found 'none'",
        ),
        (("--out", "run"), "run is a run, not a sweep; choose another folder with --out"),
    ],
)
def test_bad_input_is_one_sentence_and_leaves_nothing(
    groupwise: Run, tmp_path: Path, arguments: tuple[str, ...], message: str
) -> None:
    (tmp_path / "run" / "checkpoints").mkdir(parents=True)
    ran = groupwise("sweep", small(tmp_path), *arguments)
    assert ran.status == 2
    [line] = [line for line in ran.err.splitlines() if line.startswith("error")]
    assert line.startswith(f"error: {message}")
    assert not (tmp_path / "sweeps").exists()
