"""Optimizers with less memory: what they step, what they keep, and that a resumed learner goes on to the bit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
from safetensors.torch import load_file

from groupwise.learner import optimizers
from groupwise.learner.config import LearnerConfig
from groupwise.learner.local import LocalLearner
from groupwise.learner.local_files import MODEL
from groupwise.learner.optimizers import LeanAdamW, open_optimizer
from groupwise.learner.protocol import hash_weights
from groupwise.system.errors import ConfigError, TrainingError
from groupwise.training.config.run_config import WarmStartConfig
from tests.unit.learner.learners import learner, rollouts, tiny, totals

needs_torchao = pytest.mark.skipif(
    optimizers.find_spec("torchao") is None, reason="torchao is not installed: pip install 'groupwise[lean]'"
)
MASTERS = {"bfloat16_weights": "float32_masters"}
FORMS: dict[str, dict[str, Any]] = {
    "8-bit, stochastic rounding": {"optimizer": "adamw_8bit", "bfloat16_weights": "stochastic_rounding"},
    "8-bit, masters": {"optimizer": "adamw_8bit", **MASTERS},
    "float32 moments, masters": MASTERS,
}
ALL_FORMS = [pytest.param(name, marks=needs_torchao if name.startswith("8-bit") else ()) for name in FORMS]


def narrow_learner(form: str, **settings: Any) -> LocalLearner:
    """A learner on a model in bfloat16 that is wide enough for moments of 8 bits."""
    return learner(tiny(hidden=64)[0].to(torch.bfloat16), **{"learning_rate": 1e-2, **FORMS[form], **settings})


def make_step(made: LocalLearner) -> None:
    samples = rollouts()
    made.learn(samples, totals(samples))


def read_state(made: LocalLearner) -> dict[tuple[int, str], torch.Tensor]:
    return {
        (number, name): entry.clone()
        for number, entries in made.optimizer.state_dict()["state"].items()
        for name, entry in entries.items()
    }


@pytest.mark.parametrize("form", ALL_FORMS)
def test_a_learner_that_was_saved_goes_on_to_the_bit(tmp_path: Path, form: str) -> None:
    whole, first = narrow_learner(form), narrow_learner(form)
    for _ in range(2):
        make_step(whole)
        make_step(first)
    first.save(tmp_path)
    torch.rand(7)  # what else was drawn meanwhile is nobody's business
    second = narrow_learner(form)
    second.load(tmp_path, steps=2)
    assert {value.dtype for value in load_file(tmp_path / MODEL).values()} == {torch.bfloat16}
    for _ in range(2):
        make_step(whole)
        make_step(second)
    assert hash_weights(second.weights()) == hash_weights(whole.weights())
    expected, entries = read_state(whole), read_state(second)
    assert expected.keys() == entries.keys()
    assert all(torch.equal(entries[key], value) for key, value in expected.items())


@pytest.mark.parametrize("form", ALL_FORMS)
def test_steps_far_below_a_bfloat16_step_add_up(form: str) -> None:
    """Weights of 1 lie 1/128 apart above; forty steps of 1/1000 are 0.04, which nearest rounding would all lose."""
    weight = torch.nn.Parameter(torch.ones(64, 64, dtype=torch.bfloat16))
    config = LearnerConfig(**FORMS[form])
    optimizer = open_optimizer({"w": weight}, config, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.0)
    for _ in range(40):
        weight.grad = torch.full_like(weight, -0.5)
        optimizer.step()
    assert float(weight.detach().double().mean()) == pytest.approx(1.04, abs=0.004)
    assert weight.dtype == torch.bfloat16


def test_masters_step_as_torch_does_on_float32() -> None:
    start = torch.randn(8, 8).to(torch.bfloat16)
    narrow, wide = torch.nn.Parameter(start.clone()), torch.nn.Parameter(start.float())
    settings = {"lr": 1e-3, "betas": (0.8, 0.9), "eps": 1e-6, "weight_decay": 0.1}
    lean = LeanAdamW({"w": narrow}, moments="float32", keeps_masters=True, **settings)
    plain = torch.optim.AdamW([wide], **settings)
    for number in range(5):
        slope = torch.randn(8, 8, generator=torch.Generator().manual_seed(number)).to(torch.bfloat16)
        narrow.grad, wide.grad = slope, slope.float()
        lean.step()
        plain.step()
    torch.testing.assert_close(lean.state[narrow]["master"], wide.detach())
    assert torch.equal(narrow.detach(), lean.state[narrow]["master"].to(torch.bfloat16))


@needs_torchao
def test_a_first_step_with_8_bits_is_that_of_adamw() -> None:
    start, slope = torch.randn(64, 128), torch.randn(64, 128)
    coded, wide = torch.nn.Parameter(start.clone()), torch.nn.Parameter(start.clone())
    settings = {"lr": 1e-2, "betas": (0.9, 0.99), "eps": 1e-8, "weight_decay": 0.1}
    lean = LeanAdamW({"w": coded}, moments="8_bit", keeps_masters=False, **settings)
    plain = torch.optim.AdamW([wide], **settings)
    for value, optimizer in ((coded, lean), (wide, plain)):
        value.grad = slope.clone()
        optimizer.step()
    torch.testing.assert_close(coded, wide, rtol=1e-5, atol=1e-6)
    codes = lean.state[coded]["exp_avg_codes"]
    assert (codes.dtype, codes.numel()) == (torch.uint8, 64 * 128)


@needs_torchao
def test_a_weight_in_parts_steps_as_a_whole_one_does(monkeypatch: pytest.MonkeyPatch) -> None:
    moved = []
    for chunk in (2**24, 1024):
        monkeypatch.setattr(optimizers, "CHUNK", chunk)
        weight = torch.nn.Parameter(torch.linspace(-1, 1, 5120).reshape(64, 80))
        lean = LeanAdamW(
            {"w": weight}, lr=1e-2, betas=(0.9, 0.99), eps=1e-8, weight_decay=0.0, moments="8_bit", keeps_masters=False
        )
        for _ in range(3):
            weight.grad = weight.detach().sin()
            lean.step()
        moved.append((weight.detach().clone(), {name: entry.clone() for name, entry in lean.state[weight].items()}))
    (whole, kept), (in_parts, kept_in_parts) = moved
    assert torch.equal(whole, in_parts)
    assert all(torch.equal(entry, kept_in_parts[name]) for name, entry in kept.items())


@needs_torchao
def test_rounding_by_chance_follows_the_weight_and_its_step_and_leaves_other_chance_alone() -> None:
    made = [narrow_learner("8-bit, stochastic rounding") for _ in range(2)]
    torch.manual_seed(3)
    expected = torch.rand(4)
    torch.manual_seed(3)
    make_step(made[0])
    assert torch.equal(torch.rand(4), expected)
    make_step(made[1])
    assert hash_weights(made[0].weights()) == hash_weights(made[1].weights())


def test_masters_begin_with_the_weights_of_the_first_step() -> None:
    """A warm start and a checkpoint change weights before the optimizer knows them."""
    made = narrow_learner("float32 moments, masters")
    made.imitate(rollouts(), WarmStartConfig(epochs=1, learning_rate=0.1), seed=0)
    warm = {name: value.clone() for name, value in made.weights().items()}
    assert not made.optimizer.state
    make_step(made)
    for name, value in made.weights().items():
        assert float((value - warm[name]).float().abs().max()) < 0.05


STORED = {
    "adamw": {},
    "masters": MASTERS,
    "8-bit": {"optimizer": "adamw_8bit", **MASTERS},
    "rounded": {"optimizer": "adamw_8bit", "bfloat16_weights": "stochastic_rounding"},
}
OTHER_KINDS = [
    ("masters", "8-bit", "its optimizer holds 'exp_avg', which this run's does not; use the section"),
    ("8-bit", "masters", "its optimizer holds 'exp_avg_codes', which this run's does not; use the section"),
    ("8-bit", "rounded", "its optimizer holds 'master', which this run's does not; use the section"),
    ("rounded", "8-bit", "its optimizer holds no 'master' of 'model.embed_tokens.weight', which this run's does; use"),
]


@needs_torchao
@pytest.mark.parametrize(("stored", "asked", "message"), OTHER_KINDS)
def test_a_state_of_another_kind_is_refused_and_nothing_changes(
    tmp_path: Path, stored: str, asked: str, message: str
) -> None:
    saved = learner(tiny(hidden=64)[0].to(torch.bfloat16), **STORED[stored])
    make_step(saved)
    saved.save(tmp_path)
    other = learner(tiny(hidden=64)[0].to(torch.bfloat16), **STORED[asked])
    make_step(other)
    weights, state = hash_weights(other.weights()), read_state(other)
    with pytest.raises(TrainingError, match=message) as caught:
        other.load(tmp_path, steps=1)
    assert str(caught.value).startswith(f"checkpoint {tmp_path} is of another optimizer: ")
    assert hash_weights(other.weights()) == weights
    assert all(torch.equal(entry, state[key]) for key, entry in read_state(other).items())


def test_weights_of_another_precision_are_refused(tmp_path: Path) -> None:
    learner(tiny(hidden=64)[0]).save(tmp_path)
    with pytest.raises(
        TrainingError, match=r"'model\.embed_tokens\.weight' is float32 there and bfloat16 in this model"
    ):
        narrow_learner("float32 moments, masters").load(tmp_path, steps=0)


def test_without_torchao_a_sentence_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(optimizers, "find_spec", lambda name: None)
    with pytest.raises(ConfigError) as caught:
        optimizers.check_packages(LearnerConfig(optimizer="adamw_8bit"))
    assert str(caught.value) == (
        "training.learner.optimizer: 'adamw_8bit' needs torchao, which is not installed; run pip install "
        "'groupwise[lean]'"
    )


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"bfloat16_weights": "stochastic_rounding"},
            "LearnerConfig: bfloat16_weights is 'stochastic_rounding', which the optimizer 'adamw' does not support; "
            "set optimizer = 'adamw_8bit', or bfloat16_weights = 'float32_masters'",
        ),
        ({"max_grad_norm": 0}, 'LearnerConfig: max_grad_norm: found 0; give a number above 0, or "off"'),
        ({"max_grad_norm": "none"}, "LearnerConfig: max_grad_norm: found 'none'; give a number above 0, or \"off\""),
        ({"max_grad_norm": True}, 'LearnerConfig: max_grad_norm: found True; give a number above 0, or "off"'),
    ],
)
def test_settings_that_cannot_be_meant_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        LearnerConfig(**settings)
    assert str(caught.value) == message
