"""Packed = padded = prefix-shared = each sample alone: log-probs, entropies, loss and every gradient."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

import pytest
import torch
from torch import nn

from groupwise.data.samples import Sample
from groupwise.models.attention import BLOCK
from groupwise.models.forward import compute_token_logps
from groupwise.models.pack import Pack, Predictions, pack, pad_rows
from tests.equivalence.models import CATEGORIES, build, run_layers_again
from tests.equivalence.rollouts import make_stepwise_samples, make_tangled_samples
from tests.equivalence.training import Layout, Update, by_layout, by_oracle, whole_gradient, worst_gradient

Lay = Callable[[Sequence[Sample]], Sequence[Layout]]

LAYOUTS: dict[str, Lay] = {
    "one padded batch": lambda samples: pad_rows(samples),
    "padded too wide": lambda samples: pad_rows(samples, width=40, pad_id=7),
    "padded one by one": lambda samples: pad_rows(samples, num_rows=1),
    "padded by five": lambda samples: pad_rows(samples, num_rows=5),
    "packed": lambda samples: pack(samples, token_budget=1000, share=False),
    "packed by 50 tokens": lambda samples: pack(samples, token_budget=50, share=False),
    "shared": lambda samples: pack(samples, token_budget=1000),
    "shared by 40 tokens": lambda samples: pack(samples, token_budget=40, gate=0.0),
    "shared, one path at a time": lambda samples: pack(samples, token_budget=1, gate=0.0),
    "accumulated from halves": lambda samples: _halves(samples),
}

TEMPERATURE = 0.8


def _halves(samples: Sequence[Sample]) -> list[Pack]:
    """The first and the second half packed apart, as two ranks would; numbered as in the whole list."""
    idle = [dataclasses.replace(sample, trains=False) for sample in samples]
    middle = len(samples) // 2
    first, second = [*samples[:middle], *idle[middle:]], [*idle[:middle], *samples[middle:]]
    return [*pack(first, token_budget=1000, gate=0.0), *pack(second, token_budget=60, gate=0.0)]


@pytest.fixture(scope="module")
def samples() -> list[Sample]:
    return make_tangled_samples()


@pytest.fixture(scope="module", params=CATEGORIES)
def case(request: pytest.FixtureRequest, samples: list[Sample]) -> tuple[nn.Module, Update]:
    model = build(request.param)
    return model, by_oracle(model, samples, temperature=TEMPERATURE)


def test_the_samples_share_what_they_claim(samples: list[Sample]) -> None:
    (shared,) = pack(samples, token_budget=1000)
    (plain,) = pack(samples, token_budget=1000, share=False)
    assert plain.raw_tokens == len(plain) > 1.5 * len(shared)
    edges = list(zip(shared.predictor.tolist(), shared.target.tolist(), strict=True))
    assert len(set(edges)) < len(edges)  # some sampled tokens are shared
    assert 1 in [len(sample.response_ids) for sample in samples]


@pytest.mark.few(5)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_layout_equals_each_sample_alone(
    case: tuple[nn.Module, Update], samples: list[Sample], layout: str
) -> None:
    model, expected = case
    update = by_layout(model, samples, LAYOUTS[layout](samples), temperature=TEMPERATURE)
    torch.testing.assert_close(update.logp, expected.logp, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(update.entropy, expected.entropy, rtol=1e-5, atol=1e-5)
    assert update.loss == pytest.approx(expected.loss, rel=1e-6)
    assert whole_gradient(update, expected) < 1e-6
    assert worst_gradient(update, expected) < 1e-5


@pytest.mark.parametrize("family", ["llama", "qwen3"])
def test_eager_attention_agrees_too(family: str, samples: list[Sample]) -> None:
    model = build(family, "eager")
    expected = by_oracle(model, samples, temperature=TEMPERATURE)
    update = by_layout(model, samples, pack(samples, token_budget=60), temperature=TEMPERATURE)
    assert whole_gradient(update, expected) < 1e-6


@pytest.mark.few(4)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_in_float64_nothing_is_left_of_the_difference(samples: list[Sample], layout: str) -> None:
    model = build("gpt_neox").double()  # the family whose norms do not fall back to float32
    expected = by_oracle(model, samples, temperature=TEMPERATURE)
    update = by_layout(model, samples, LAYOUTS[layout](samples), temperature=TEMPERATURE)
    assert update.loss == pytest.approx(expected.loss, rel=1e-7)  # advantages pass through float32
    exact = [dataclasses.replace(one, advantage=1.0, logp_behaviour=(-3.0,) * len(one.response_ids)) for one in samples]
    expected = by_oracle(model, exact, temperature=TEMPERATURE)
    update = by_layout(model, exact, LAYOUTS[layout](exact), temperature=TEMPERATURE)
    assert worst_gradient(update, expected) < 1e-12


@pytest.mark.parametrize("window", [2, None])
@pytest.mark.parametrize("share", [True, False])
def test_packs_of_many_attention_blocks(window: int | None, share: bool) -> None:
    rollouts = make_stepwise_samples(window=window)
    model = build("llama", max_position_embeddings=512)
    expected = by_oracle(model, rollouts, temperature=TEMPERATURE)
    layouts = pack(rollouts, token_budget=5000, share=share)
    assert len(layouts[0]) > 3 * BLOCK
    update = by_layout(model, rollouts, layouts, temperature=TEMPERATURE, chunk=2048)
    assert whole_gradient(update, expected) < 1e-6
    assert worst_gradient(update, expected) < 1e-5


@pytest.mark.parametrize("reentrant", [False, True])
def test_tied_embeddings_and_gradient_checkpointing(reentrant: bool) -> None:
    rollouts = make_stepwise_samples()
    model = build("llama", tie_word_embeddings=True, max_position_embeddings=512)
    expected = by_oracle(model, rollouts, temperature=TEMPERATURE)
    run_layers_again(model, use_reentrant=reentrant)
    model.train()
    update = by_layout(model, rollouts, pack(rollouts, token_budget=5000), temperature=TEMPERATURE)
    assert whole_gradient(update, expected) < 1e-6


@pytest.mark.parametrize("saved", [None, ["lm_head"]])
def test_lora_trains_the_same_with_and_without_a_trained_head(samples: list[Sample], saved: list[str] | None) -> None:
    peft = pytest.importorskip("peft", reason="LoRA adapters come from peft")
    config = peft.LoraConfig(r=4, target_modules="all-linear", init_lora_weights=False, modules_to_save=saved)
    model = peft.get_peft_model(build("qwen2"), config)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "modules_to_save" in name:  # a trained copy of the head, no longer equal to the original
                parameter += 0.1 * torch.randn_like(parameter)
    expected = by_oracle(model, samples, temperature=TEMPERATURE)
    update = by_layout(model, samples, pack(samples, token_budget=60), temperature=TEMPERATURE)
    assert any("lora_A" in name for name in expected.gradients)
    assert any("lm_head" in name for name in expected.gradients) == (saved is not None)
    assert worst_gradient(update, expected) < 1e-5
    with model.disable_adapter():
        expected = by_oracle(build("qwen2"), samples, temperature=TEMPERATURE)
        with torch.no_grad():
            plain = _logps(model, samples)
    torch.testing.assert_close(plain, expected.logp, rtol=1e-5, atol=1e-5)


def _logps(model: nn.Module, samples: Sequence[Sample]) -> torch.Tensor:
    (packed,) = pack(samples, token_budget=1000)
    logp, _ = compute_token_logps(model, packed, temperature=TEMPERATURE)
    logps = torch.zeros(len(samples), max(len(sample.response_ids) for sample in samples))
    logps[packed.sample, packed.position] = logp
    return logps


def test_what_samples_that_do_not_train_hold_changes_no_bit(samples: list[Sample]) -> None:
    model = build("llama")
    nan = float("nan")
    other = [
        sample if sample.num_trained else dataclasses.replace(sample, advantage=(nan,) * len(sample.response_ids))
        for sample in samples
    ]
    assert sum(one is not two for one, two in zip(samples, other, strict=True)) == 2
    _same_bits(
        by_layout(model, samples, pack(samples, token_budget=60), temperature=TEMPERATURE),
        by_layout(model, other, pack(other, token_budget=60), temperature=TEMPERATURE),
    )


def test_padding_changes_no_bit(samples: list[Sample]) -> None:
    model = build("llama")
    _same_bits(
        by_layout(model, samples, pad_rows(samples, width=40, pad_id=0), temperature=TEMPERATURE),
        by_layout(model, samples, pad_rows(samples, width=40, pad_id=11), temperature=TEMPERATURE),
    )


@pytest.mark.parametrize("lay", ["one padded batch", "packed", "shared"])
def test_gradient_comes_from_the_weighed_targets_alone(samples: list[Sample], lay: str) -> None:
    """With weight on the tokens of one sample, the other samples' targets may be anything."""
    model = build("llama")
    (layout,) = LAYOUTS[lay](samples)
    chosen = layout.sample == layout.members[3]
    wrong = torch.where(chosen, layout.target, (layout.target + 5) % 29)
    assert bool((wrong != layout.target).any())
    gradients = []
    for target in (layout.target, wrong):
        model.zero_grad()
        predictions = Predictions.of(layout.predictor.numpy(), target.numpy())
        logp, _ = compute_token_logps(model, dataclasses.replace(layout, predictions=predictions))
        logp[chosen].sum().backward()
        gradients.append({name: one.grad.clone() for name, one in model.named_parameters()})
    assert all(torch.equal(gradients[0][name], gradient) for name, gradient in gradients[1].items())


@pytest.mark.parametrize("lay", ["one padded batch", "packed", "shared"])
def test_tokens_after_the_weighed_one_cannot_reach_it(lay: str) -> None:
    """The embedding of a token that only follows what is trained stays without gradient."""
    model = build("llama")
    (layout,) = LAYOUTS[lay]([_plain((3, 4), (5, 6, 20)), _plain((3, 4), (5, 21, 22)), _plain((23, 4), (5,))])
    first = (layout.sample == 0) & (layout.position <= 1)
    logp, _ = compute_token_logps(model, layout)
    logp[first].sum().backward()
    embedding = model.get_input_embeddings().weight.grad  # type: ignore[operator]
    assert embedding.any(1).nonzero().flatten().tolist() == [3, 4, 5]


def _plain(prompt: tuple[int, ...], response: tuple[int, ...]) -> Sample:
    return Sample(prompt_ids=prompt, response_ids=response, advantage=1.0, trajectory=0, step=0, group=0)


def _same_bits(one: Update, other: Update) -> None:
    assert one.loss == other.loss
    assert one.gradients.keys() == other.gradients.keys()
    assert all(torch.equal(other.gradients[name], gradient) for name, gradient in one.gradients.items())
