"""Gradients applied as they come: the same step as all together, without ever holding them all, and where it stops."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from groupwise.learner.local import LocalLearner
from groupwise.learner.protocol import hash_weights
from groupwise.system.errors import ConfigError, TrainingError
from tests.unit.learner.learners import learner, rollouts, totals

COMING = {"apply_gradients": "as_they_come", "max_grad_norm": "off"}


def learn(made: LocalLearner) -> dict[str, float]:
    samples = rollouts()
    return made.learn(samples, totals(samples)).metrics


@pytest.mark.parametrize("settings", [{}, {"passes": 2}, {"checkpoint_layers": True}], ids=str)
def test_the_step_is_the_one_that_all_gradients_together_make(settings: dict[str, Any]) -> None:
    coming, together = learner(**COMING, **settings), learner(max_grad_norm="off", **settings)
    for _ in range(2):
        some, others = learn(coming), learn(together)
        assert some["learner/grad_norm"] == pytest.approx(others.pop("learner/grad_norm"), rel=1e-5)
        assert {name: some[name] for name in others} == others
    assert hash_weights(coming.weights()) == hash_weights(together.weights())
    assert (coming.steps, together.steps) == (2 * settings.get("passes", 1),) * 2


def test_at_most_one_gradient_is_there_at_a_time() -> None:
    made, at_a_time = learner(**COMING), []
    made.optimizer.register_step_pre_hook(
        lambda *_: at_a_time.append(sum(value.grad is not None for value in made.model.parameters()))
    )
    learn(made)
    assert at_a_time == [1] * len(made.weights())
    assert all(value.grad is None for value in made.model.parameters())


def test_off_shortens_nothing_and_reports_the_length() -> None:
    off, infinite = learner(max_grad_norm="off"), learner(max_grad_norm=math.inf)
    assert learn(off) == learn(infinite)
    assert hash_weights(off.weights()) == hash_weights(infinite.weights())


def test_clipping_is_refused_with_the_memory_it_would_take() -> None:
    with pytest.raises(ConfigError) as caught:
        learner(apply_gradients="as_they_come")
    assert str(caught.value) == (
        "training.learner.apply_gradients: 'as_they_come' cannot clip gradients to 1, because their norm is known "
        "only once all are in memory, which takes 0.00 GiB for the gradients of 3,648 weights; set max_grad_norm = "
        "'off', or apply_gradients = 'together'"
    )


def test_several_micro_batches_are_refused_before_anything_changes() -> None:
    made = learner(**COMING, token_budget=16)
    before = hash_weights(made.weights())
    with pytest.raises(TrainingError, match=r"one micro-batch per optimizer step, found \d; adding their grad"):
        learn(made)
    assert (hash_weights(made.weights()), made.steps) == (before, 0)


def test_a_gradient_that_is_not_finite_is_not_applied_and_the_learner_stops(tmp_path: Path) -> None:
    made = learner(**COMING)
    made.save(tmp_path)
    broken = made.model.model.layers[0].mlp.up_proj.weight
    before = broken.detach().clone()
    hook = broken.register_hook(lambda slope: slope * math.nan)
    with pytest.raises(TrainingError) as caught:
        learn(made)
    hook.remove()
    assert torch.equal(broken, before)
    assert all(bool(value.isfinite().all()) for value in made.model.parameters())
    sentence = str(caught.value)
    assert sentence.startswith(
        "optimizer step 1: the gradient of model.layers.0.mlp.up_proj.weight is not finite, after "
    )
    assert sentence.endswith(
        "continue from the last checkpoint with --resume, and lower the learning rate, or set "
        "training.learner.apply_gradients = 'together'"
    )
    for refused in (
        lambda: learn(made),
        lambda: made.save(tmp_path),
        lambda: made.export(tmp_path / "exported"),
        made.weights,
        made.hold_reference,
        lambda: made.logps([((2, 4), (5, 3))]),
        lambda: made.hidden_states([((2, 4), (5, 3))]),
    ):
        with pytest.raises(TrainingError, match="weights were already updated"):
            refused()
    assert not (tmp_path / "exported").exists()
    made.load(tmp_path, steps=0)
    assert learn(made)["learner/optimizer_steps"] == 1


def test_a_gradient_that_was_left_behind_is_not_applied_after_loading(tmp_path: Path) -> None:
    """As where memory runs out while a weight takes its step."""
    made, whole = learner(**COMING), learner(**COMING)
    made.save(tmp_path)
    with pytest.MonkeyPatch.context() as patch:

        def fail(*_: object) -> None:
            raise MemoryError

        patch.setattr(made.optimizer, "step", fail)
        with pytest.raises(MemoryError):
            learn(made)
    made.load(tmp_path, steps=0)
    assert learn(made) == learn(whole)
    assert hash_weights(made.weights()) == hash_weights(whole.weights())


def test_a_backward_pass_that_ends_early_stops_the_learner() -> None:
    made = learner(**COMING)

    def fail(_: torch.Tensor) -> None:
        raise MemoryError

    made.model.model.embed_tokens.weight.register_hook(fail)
    with pytest.raises(MemoryError):
        learn(made)
    with pytest.raises(TrainingError, match=r"the backward pass failed \(MemoryError\); continue from the last"):
        learn(made)


def test_a_loss_that_is_not_finite_leaves_everything_as_it_was() -> None:
    made, samples = learner(**COMING), rollouts()
    samples[1] = dataclasses.replace(samples[1], advantage=math.inf)
    before = hash_weights(made.weights())
    with pytest.raises(TrainingError, match="weights and optimizer are unchanged"):
        made.learn(samples, totals(samples))
    assert (hash_weights(made.weights()), made.steps) == (before, 0)
