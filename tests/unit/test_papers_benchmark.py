"""The run files of examples/papers are run with a small model, from training to the exported model."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("textworld")
pytest.importorskip("math_verify")

from benchmarks.papers import BENCHMARKS, GAMES, run_file
from tests.unit.envs.math_sets import gsm8k, write_json, write_lines


def options(**changes: Path) -> Namespace:
    return Namespace(**{"games": GAMES, "webshop": None, "math": None, "vllm": None, **changes})


def test_hgpo_on_alfworld_with_the_columns_of_its_table(tmp_path: Path) -> None:
    record = run_file("hgpo_alfworld_1.5b", tmp_path, options())
    assert record["the exported model has the same"]
    steps = record["updates"]["learner/optimizer_steps"]
    assert len(steps) == 2
    assert steps[0] > 1, "mini-batches of a fixed number of steps"
    assert min(record["updates"]["learner/grad_norm"]) > 0
    assert min(record["updates"]["advantage/compared"]) > 0.5
    names = [line.split()[0] for line in record["evaluation"]]
    assert names.count("pick_and_place_simple") == 2
    assert [name for name in names if "domain" in name] == ["in-domain", "out-of-domain"]


def test_r3_with_the_columns_of_its_table(tmp_path: Path) -> None:
    data = tmp_path / "mathematics"
    write_json(data / "math_train.json", gsm8k(1, 30))
    for number, name in enumerate(BENCHMARKS):
        write_lines(data / f"{name}.jsonl", gsm8k(100 * (number + 1), 4))
    record = run_file("r3_deepscaler_1.5b", tmp_path, options(math=data))
    assert record["the exported model has the same"]
    assert min(record["updates"]["learner/grad_norm"]) > 0
    head, *rows = record["evaluation"][-6:]
    assert [name for name in ("pass@1", "pass@16", "tokens") if name not in head] == []
    assert sorted(row.split()[0] for row in rows) == sorted(BENCHMARKS)
