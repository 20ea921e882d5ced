"""The learner and its checkpoints, where things go wrong."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from groupwise import recipes  # noqa: E402
from groupwise.core.errors import TrainingError  # noqa: E402
from groupwise.core.sample import Sample  # noqa: E402
from groupwise.core.totals import Totals  # noqa: E402
from groupwise.engines import TinyModel  # noqa: E402
from groupwise.training import checkpoint  # noqa: E402
from groupwise.training.learner import Learner  # noqa: E402
from groupwise.training.learner_config import LearnerConfig  # noqa: E402
from groupwise.training.run import parameter_hash  # noqa: E402

WORDS = ("alpha", "bravo", "charlie")


def learner(**config: Any) -> tuple[Learner, Any]:
    model, tokenizer = TinyModel(hidden=16, layers=1).open(words=WORDS, seed=0)
    loss = recipes.dr_grpo().loss
    assert loss is not None
    return Learner(model, loss, LearnerConfig(learning_rate=1e-2, **config)), tokenizer


def samples(*advantages: float) -> list[Sample]:
    return [
        Sample(
            prompt_ids=(2, 4 + i % 3),
            response_ids=(5, 3),
            advantage=advantage,
            logp_behaviour=(-1.0, -1.0),
            trajectory=i,
            step=0,
            group=0,
        )
        for i, advantage in enumerate(advantages)
    ]


def totals(num: int) -> Totals:
    return Totals.count(tokens=[2] * num, trajectory=list(range(num)), step=[0] * num, group=[0] * num, max_tokens=2)


def test_praise_makes_a_response_likelier_and_blame_less_likely() -> None:
    for advantage in (1.0, -1.0):
        made, _ = learner()
        before = made._score(samples(advantage))[0].sum()
        made.learn(samples(advantage), totals(1))
        after = made._score(samples(advantage))[0].sum()
        assert (after > before) == (advantage > 0)


@pytest.mark.parametrize("advantage", [float("nan"), float("inf")])
def test_a_loss_that_is_not_finite_leaves_the_weights_as_they_were(advantage: float) -> None:
    made, _ = learner()
    before = parameter_hash(made.model)
    with pytest.raises(TrainingError) as caught:
        made.learn(samples(1.0, advantage), totals(2))
    assert str(caught.value).startswith("optimiser step 1: the loss is not finite (loss ")
    assert "the weights were left as they were" in str(caught.value)
    assert parameter_hash(made.model) == before
    assert all(value.grad is None for value in made.model.parameters())


def test_a_gradient_that_is_not_finite_is_named() -> None:
    made, _ = learner()
    next(made.model.parameters()).register_hook(lambda gradient: gradient * float("nan"))
    with pytest.raises(TrainingError, match="the gradient is not finite"):
        made.learn(samples(1.0), totals(1))


def test_micro_batches_change_nothing() -> None:
    hashes = set()
    for budget in (4, 8, 512):
        made, _ = learner(token_budget=budget, share_prefixes=False)
        made.learn(samples(1.0, -0.5, 0.25, 2.0), totals(4))
        hashes.add(tuple(round(float(value.detach().sum()), 4) for value in made.model.parameters()))
    assert len(hashes) == 1


def test_several_passes_over_mini_batches_make_that_many_steps() -> None:
    made, _ = learner(passes=2, minibatches=3)
    made.learn(samples(1.0, -1.0, 0.5, 0.25), totals(4))
    assert made.steps == 6


def test_a_full_disk_leaves_the_earlier_checkpoint_and_no_draft(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, tokenizer = learner()
    checkpoint.save_checkpoint(tmp_path, 1, made, tokenizer, {})

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(checkpoint, "save_file", full)
    with pytest.raises(TrainingError) as caught:
        checkpoint.save_checkpoint(tmp_path, 2, made, tokenizer, {})
    assert str(caught.value) == (
        f"checkpoint {tmp_path / '0002'} could not be written (No space left on device); the earlier ones are "
        "untouched. Free some space, then go on with --resume"
    )
    assert sorted(path.name for path in tmp_path.iterdir()) == ["0001", "latest"]
    latest = checkpoint.latest_checkpoint(tmp_path)
    assert latest is not None
    assert latest.name == "0001"


def test_a_checkpoint_brings_back_weights_and_moments_to_the_bit(tmp_path: Path) -> None:
    made, tokenizer = learner()
    made.learn(samples(1.0, -1.0), totals(2))
    path = checkpoint.save_checkpoint(tmp_path, 1, made, tokenizer, {"seed": 7})
    other, _ = learner()
    assert checkpoint.load_checkpoint(path, other)["seed"] == 7
    assert other.steps == made.steps
    for one in (made, other):
        one.learn(samples(0.5, 0.25), totals(2))
    assert parameter_hash(made.model) == parameter_hash(other.model)


def test_a_pointer_to_nothing_names_the_checkpoint_before(tmp_path: Path) -> None:
    made, tokenizer = learner()
    checkpoint.save_checkpoint(tmp_path, 3, made, tokenizer, {})
    (tmp_path / "latest").write_text("0009\n")
    with pytest.raises(TrainingError) as caught:
        checkpoint.latest_checkpoint(tmp_path)
    assert str(caught.value) == (
        f"{tmp_path / 'latest'} names 0009, which is not there; the one before it is 0003: write `0003` into "
        f"{tmp_path / 'latest'} and resume"
    )
