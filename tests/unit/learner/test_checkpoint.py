"""Checkpoints: written whole or not at all, and back to the bit."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from groupwise.learner import local_files
from groupwise.learner.protocol import hash_weights
from groupwise.losses import Kl, PolicyLoss
from groupwise.store.checkpoint_files import find_latest_checkpoint
from groupwise.system.errors import TrainingError
from groupwise.training import checkpoints as checkpoint
from tests.unit.learner.learners import learner, single_steps, tiny, totals


def test_a_full_disk_leaves_the_earlier_checkpoint_and_no_draft(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, tokenizer = tiny()
    made = learner(model)
    checkpoint.save_checkpoint(tmp_path, 1, made, tokenizer, {})

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(local_files, "save_file", full)
    with pytest.raises(TrainingError) as caught:
        checkpoint.save_checkpoint(tmp_path, 2, made, tokenizer, {})
    assert str(caught.value) == (
        f"checkpoint {tmp_path / '0002'} could not be written (No space left on device); the earlier ones are "
        "untouched. Free some space, then continue with --resume"
    )
    assert sorted(path.name for path in tmp_path.iterdir()) == ["0001", "latest"]
    latest = find_latest_checkpoint(tmp_path)
    assert latest is not None
    assert latest.name == "0001"


def make_adapted_model() -> Any:
    peft = pytest.importorskip("peft")
    torch.manual_seed(1)
    return peft.get_peft_model(tiny()[0], peft.LoraConfig(r=2, target_modules="all-linear"))


@pytest.mark.parametrize("make", [lambda: tiny()[0], make_adapted_model], ids=["all weights", "lora"])
def test_a_checkpoint_brings_back_weights_moments_and_schedule_to_the_bit(tmp_path: Path, make: Any) -> None:
    loss = PolicyLoss(penalties=(Kl(weight=0.1),))
    schedule = {"kind": "cosine", "steps": 5, "warmup_steps": 2}
    made, other = (learner(make(), loss, schedule=schedule) for _ in range(2))
    samples = single_steps(1.0, -1.0)
    start = checkpoint.save_checkpoint(tmp_path, 0, made, tiny()[1], {})
    for _ in range(2):
        made.learn(samples, totals(samples))
    path = checkpoint.save_checkpoint(tmp_path, 2, made, tiny()[1], {"seed": 7})
    assert checkpoint.load_checkpoint(path, other)["seed"] == 7
    other.hold_reference(start)
    assert other.steps == made.steps == 2
    for _ in range(2):
        expected, metrics = (one.learn(samples, totals(samples)).metrics for one in (made, other))
        assert metrics == expected
    assert hash_weights(made.weights()) == hash_weights(other.weights())


def test_of_an_adapter_only_the_adapter_is_written(tmp_path: Path) -> None:
    model = make_adapted_model()
    path = checkpoint.save_checkpoint(tmp_path, 1, learner(model), tiny()[1], {})
    assert not (path / "model.safetensors").exists()
    stored = local_files.read_weights(path)
    trained = {name: value for name, value in model.named_parameters() if value.requires_grad}
    assert stored.keys() == trained.keys()
    assert all(torch.equal(stored[name], value) for name, value in trained.items())


def test_a_checkpoint_of_another_model_is_refused(tmp_path: Path) -> None:
    path = checkpoint.save_checkpoint(tmp_path, 1, learner(tiny(layers=2)[0]), tiny()[1], {})
    made = learner()
    before = hash_weights(made.weights())
    with pytest.raises(TrainingError) as caught:
        checkpoint.load_checkpoint(path, made)
    assert str(caught.value) == (
        f"checkpoint {path} is of another model: it has 'model.layers.1.input_layernorm.weight', which this model does "
        "not have; use the section [model] of the run's config.toml, or start a new run in another folder"
    )
    assert hash_weights(made.weights()) == before, "nothing was loaded"


def test_a_pointer_to_nothing_names_the_checkpoint_before(tmp_path: Path) -> None:
    model, tokenizer = tiny()
    made = learner(model)
    checkpoint.save_checkpoint(tmp_path, 3, made, tokenizer, {})
    (tmp_path / "latest").write_text("0009\n")
    with pytest.raises(TrainingError) as caught:
        find_latest_checkpoint(tmp_path)
    assert str(caught.value) == (
        f"{tmp_path / 'latest'} names 0009, which is not there; the newest checkpoint that is whole and fits the "
        f"journal is 0003: write `0003` into {tmp_path / 'latest'} and resume"
    )
