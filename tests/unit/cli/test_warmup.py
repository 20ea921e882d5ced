"""`groupwise warmup`: a model folder that a run can begin from."""

from __future__ import annotations

from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from groupwise.models import PretrainedModel
from groupwise.training.config.run_file import load_run
from tests.unit.cli.conftest import Run
from tests.unit.cli.files import row, write
from tests.unit.cli.run_files import small

EPOCHS = ("--set", "warm_start.epochs=150", "--set", "warm_start.learning_rate=0.03")
WARM = 'model={kind="pretrained",path="warm"}'


def test_the_folder_holds_what_was_taught_and_a_run_begins_with_it(groupwise: Run, tmp_path: Path) -> None:
    ran = groupwise("warmup", small(tmp_path), "--out", "warm", *EPOCHS)
    assert ran.status == 0, ran.err
    lines = ran.out.splitlines()
    assert lines[0] == "2 steps of 2 expert rollouts"
    assert lines[1].startswith("loss 2.")
    assert lines[1].endswith("over 150 epochs")
    assert float(lines[1].split()[3]) < 0.1
    assert lines[2].startswith("success 100.0 % ")
    assert lines[-3:] == ["[model]", 'kind = "pretrained"', 'path = "warm"']
    assert sorted(path.name for path in tmp_path.iterdir()) == ["small.toml", "warm"]
    ran = groupwise("train", "small.toml", "--set", WARM, "--set", "training.updates=0")
    assert ran.status == 0, ran.err
    assert ran.out.startswith("before the first update: success 100.0 %")


def test_recorded_rollouts_teach_instead_of_the_expert(groupwise: Run, tmp_path: Path) -> None:
    said = {"alpha": "delta", "bravo": "bravo", "charlie": "charlie", "delta": "delta"}
    write(
        tmp_path / "seen.jsonl",
        [
            row(word, 0, 0, word, float(word == answer), observation=f"Say {word}.", action=answer)
            for word, answer in said.items()
        ],
    )
    ran = groupwise("warmup", small(tmp_path), "--out", "warm", "--from", "seen.jsonl", *EPOCHS)
    assert ran.status == 0, ran.err
    assert ran.out.splitlines()[0] == "3 steps of 3 recorded rollouts"  # the one that earned nothing is left out
    ran = groupwise("warmup", "small.toml", "--out", "all", "--from", "seen.jsonl", "--min-return", "0", *EPOCHS)
    assert ran.out.splitlines()[0] == "4 steps of 4 recorded rollouts"


def test_an_adapter_is_merged_so_that_the_folder_is_a_whole_model(groupwise: Run, tmp_path: Path) -> None:
    assert groupwise("warmup", small(tmp_path), "--out", "warm", *EPOCHS).status == 0
    lora = 'model={kind="pretrained",path="warm",lora_rank=2}'
    ran = groupwise("warmup", "small.toml", "--out", "merged", "--set", lora, *EPOCHS)
    assert ran.status == 0, ran.err
    words = load_run(tmp_path / "small.toml").env.vocabulary()
    whole, merged = (
        PretrainedModel(path=str(tmp_path / name)).open(words=words, seed=0)[0].state_dict()
        for name in ("warm", "merged")
    )
    assert whole.keys() == merged.keys()
    assert any(not torch.equal(whole[name], merged[name]) for name in whole)


def test_what_cannot_be_is_told_before_anything_is_loaded(groupwise: Run, tmp_path: Path) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "x").touch()
    assert groupwise("warmup", "missing.toml", "--out", "full").err == (
        "error: full already exists; choose another folder with --out\n"
    )
    assert groupwise("warmup", "missing.toml", "--out", "new", "--min-return", "1").err == (
        "error: --min-return needs recorded rollouts; give them with --from\n"
    )
