"""How the learner runs its model: checkpointed layers and bfloat16 change what it costs, not what is learnt."""

from __future__ import annotations

import pytest
import torch

from groupwise.learner.config import LearnerConfig
from groupwise.models.forward import Forward
from groupwise.system.errors import ConfigError
from tests.equivalence.models import build
from tests.equivalence.rollouts import make_stepwise_samples


def gradient(model: torch.nn.Module, **settings: object) -> torch.Tensor:
    forward = Forward(model, LearnerConfig(**settings))
    samples = make_stepwise_samples(rollouts=2, steps=3)
    model.zero_grad()
    for layout in forward.lay_out(samples, token_budget=200, unit="sample"):
        forward(layout)[0].sum().backward()
    return torch.cat([one.grad.flatten() for one in model.parameters() if one.grad is not None])


def model() -> torch.nn.Module:
    return build("llama", max_position_embeddings=512)


def apart(actual: torch.Tensor, expected: torch.Tensor) -> float:
    return float((actual - expected).norm() / expected.norm())


def test_checkpointed_layers_are_run_again_and_give_the_same_gradient() -> None:
    runs: list[int] = []
    plain, again = model(), model()
    expected = gradient(plain)
    # Of a part of the layer: the layer's own hooks are outside of what transformers 5.23 runs again.
    again.model.layers[0].mlp.register_forward_pre_hook(lambda *_: runs.append(1))  # type: ignore[union-attr, operator]
    recomputed = gradient(again, checkpoint_layers=True)
    assert apart(recomputed, expected) < 1e-6
    layouts = len(
        Forward(plain, LearnerConfig()).lay_out(
            make_stepwise_samples(rollouts=2, steps=3), token_budget=200, unit="sample"
        )
    )
    checks = 2 + 4  # both ways of packing, and four probes by the model itself, on first meeting it
    assert len(runs) == 2 * layouts + checks


def test_nothing_inside_a_checkpointed_layer_trains() -> None:
    net = model()
    Forward(net, LearnerConfig(checkpoint_layers=True))
    training = {name for name, module in net.named_modules() if module.training}
    assert training == {"model.layers.0", "model.layers.1"}


def test_a_layer_that_drops_out_by_itself_is_refused() -> None:
    net = model()
    net.model.layers[1].hidden_dropout = 0.1  # type: ignore[union-attr, index]
    with pytest.raises(ConfigError, match="has dropout of its own in training mode \\(hidden_dropout\\)"):
        Forward(net, LearnerConfig(checkpoint_layers=True))


def test_bfloat16_is_near_float32_and_leaves_the_weights_wide() -> None:
    net = model()
    narrow = gradient(net, precision="bfloat16")
    assert 1e-4 < apart(narrow, gradient(model())) < 0.05
    assert {value.dtype for value in net.parameters()} == {torch.float32}


def test_a_model_without_layers_of_its_own_is_refused() -> None:
    class Bare(torch.nn.Module):
        pass

    with pytest.raises(ConfigError, match="Bare has no layers that can be run one by one"):
        Forward(Bare(), LearnerConfig(compile_layers=True))  # type: ignore[arg-type]
