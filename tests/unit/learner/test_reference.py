"""The reference policy: held as the weights that train, equal to an explicit copy of the model."""

from __future__ import annotations

import copy
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from groupwise.learner.local import Reference
from groupwise.learner.protocol import hash_weights
from groupwise.losses import Kl, PolicyLoss
from groupwise.system.errors import TrainingError
from tests.unit.learner.learners import learner, logps, rollouts, tiny, totals

KL = PolicyLoss(penalties=(Kl(weight=0.1),))


def make_adapted_model(rank: int = 2) -> Any:
    """The tiny model with a LoRA adapter that does nothing yet."""
    peft = pytest.importorskip("peft")
    torch.manual_seed(1)
    return peft.get_peft_model(tiny()[0], peft.LoraConfig(r=rank, lora_alpha=4, target_modules="all-linear"))


def k3(reference: torch.Tensor, current: torch.Tensor) -> float:
    gap = reference.double() - current.double()
    return float((gap.exp() - gap - 1).mean())


@pytest.mark.parametrize("make", [lambda: tiny()[0], make_adapted_model], ids=["all weights", "lora"])
def test_the_kl_is_that_to_an_explicit_copy(make: Any) -> None:
    model, samples = make(), rollouts()
    explicit = copy.deepcopy(model).eval()
    made = learner(model, KL, learning_rate=0.05, token_budget=24)
    for _ in range(3):
        before = logps(model, samples)
        reported = made.learn(samples, totals(samples)).metrics["loss/kl_to_reference"]
        assert reported == pytest.approx(k3(logps(explicit, samples), before), rel=1e-4, abs=1e-7)
    assert reported > 1e-3


def test_of_an_adapter_that_starts_as_nothing_the_reference_is_the_model_with_the_adapter_off() -> None:
    model, samples = make_adapted_model(), rollouts()
    made = learner(model, KL, learning_rate=0.05)
    for _ in range(3):
        before = logps(model, samples)
        with model.disable_adapter():
            base = logps(model, samples)
        reported = made.learn(samples, totals(samples)).metrics["loss/kl_to_reference"]
        assert reported == pytest.approx(k3(base, before), rel=1e-4, abs=1e-7)
    assert reported > 1e-3


def test_of_an_adapter_only_the_adapter_is_held() -> None:
    model = make_adapted_model()
    held = sum(value.numel() for value in Reference(model)._held)
    assert held == sum(value.numel() for name, value in model.named_parameters() if "lora" in name)
    assert held < 0.5 * sum(value.numel() for value in model.parameters())


@pytest.mark.parametrize("make", [lambda: tiny()[0], make_adapted_model], ids=["all weights", "lora"])
def test_a_policy_that_was_warm_started_can_be_taken_as_the_reference(make: Any) -> None:
    model, samples = make(), rollouts()
    made = learner(model, KL)
    with torch.no_grad():
        for value in model.parameters():
            if value.requires_grad:
                value.add_(0.05)
    assert made.learn(samples, totals(samples)).metrics["loss/kl_to_reference"] > 1e-3
    made.hold_reference()
    assert made.learn(samples, totals(samples)).metrics["loss/kl_to_reference"] == pytest.approx(0.0, abs=1e-9)


def test_scoring_with_the_reference_leaves_the_weights_where_they_were() -> None:
    model, samples = tiny()[0], rollouts()
    reference = Reference(model)
    explicit = copy.deepcopy(model)
    with torch.no_grad():
        for value in model.parameters():
            value.mul_(1.5)
    moved = hash_weights(model.state_dict())
    with torch.no_grad(), reference.in_place():
        assert hash_weights(model.state_dict()) == hash_weights(explicit.state_dict())
        inside = logps(model, samples)
    assert torch.equal(inside, logps(explicit, samples))
    assert hash_weights(model.state_dict()) == moved


def test_a_failure_while_the_reference_is_in_place_puts_the_weights_back() -> None:
    model = tiny()[0]
    reference = Reference(model)
    with torch.no_grad():
        model.model.norm.weight.mul_(2.0)
    moved = hash_weights(model.state_dict())
    with pytest.raises(KeyError), torch.no_grad(), reference.in_place():
        raise KeyError("out of memory, say")
    assert hash_weights(model.state_dict()) == moved


def test_of_tied_weights_any_name_will_do() -> None:
    model, other = tiny()[0], tiny(expansion=3)[0]
    reference = Reference(model)
    with torch.no_grad():
        other.model.embed_tokens.weight.mul_(2.0)
    weights = dict(other.state_dict())
    del weights["model.embed_tokens.weight"]  # the head, which it is tied to, is still there
    reference.hold(weights)
    with torch.no_grad(), reference.in_place():
        assert torch.equal(model.lm_head.weight, other.model.embed_tokens.weight)


def test_weights_of_another_model_are_refused() -> None:
    weights = tiny()[0].state_dict()
    del weights["model.norm.weight"]
    with pytest.raises(TrainingError) as caught:
        Reference(tiny()[0]).hold(weights)
    assert str(caught.value) == "the reference weights have no 'model.norm.weight'; give weights of the same model"


def test_a_loss_without_a_kl_holds_no_reference() -> None:
    made, samples = learner(), rollouts()
    assert made._reference is None
    assert "loss/kl_to_reference" not in made.learn(samples, totals(samples)).metrics
