"""On a GPU, packed = padded = prefix-shared: in float32 to rounding, in bfloat16 within the noise of padded rows."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import nn

from groupwise.data.samples import Sample
from groupwise.losses import Plain, PolicyLoss
from groupwise.methods import METHODS
from groupwise.models import attention_gpu
from groupwise.models.attention import make_dense_mask
from groupwise.models.forward import _checkpoint_layers
from groupwise.models.pack import pack, pad_rows, pad_within_budget
from tests.equivalence.method_losses import apart, update
from tests.equivalence.models import build
from tests.equivalence.rollouts import VOCABULARY, make_stepwise_samples, make_tangled_samples, with_token_credit

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning"),  # of the compiler's own parts
]

WIDE = {"hidden_size": 128, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 32}
SIZES = WIDE | {"intermediate_size": 256, "max_position_embeddings": 4096}
LOSSES = [name for name, method in METHODS.items() if method().loss is not None]
SMOOTH = PolicyLoss(surrogate=Plain())
"""A loss without a threshold: one token that rounding moves over a clip bound changes the gradient by five times the
noise of bfloat16."""


@pytest.fixture(autouse=True)
def _exact_products() -> None:
    """Float32 products to the last digit, whatever the machine prefers."""
    torch.set_float32_matmul_precision("highest")


def model_of(family: str, **changes: object) -> nn.Module:
    kept = {"sliding_window": 4096} if family.startswith("gemma") else {}
    return build(family, "sdpa", **SIZES | kept | changes).cuda()


def rollouts(window: int | None = None) -> list[Sample]:
    """Rollouts long enough for whole blocks of attention, and everything else that could tell layouts apart."""
    long = make_stepwise_samples(rollouts=4, steps=12, window=window)
    both = [
        *make_tangled_samples(),
        *(replace(one, trajectory=one.trajectory + 100, group=one.group + 100) for one in long),
    ]
    return [replace(sample, off_policy=sample.trajectory % 4 == 1) for sample in both]


@pytest.mark.parametrize("family", ["llama", "qwen2", "qwen3", "gemma3"])
@pytest.mark.parametrize("window", [None, 2])
def test_float32_gradients_equal_those_of_padded_rows(family: str, window: int | None) -> None:
    samples, loss, model = rollouts(window), METHODS["hgpo"]().loss, model_of(family)
    assert loss is not None
    _, expected = update(model, loss, samples, pad_within_budget(samples, token_budget=4096, unit=loss.unit))
    for share in (True, False):
        packs = pack(samples, token_budget=1500, gate=0.0, share=share, unit=loss.unit)
        assert apart(update(model, loss, samples, packs)[1], expected) < 1e-5
    assert model.config._attn_implementation == attention_gpu.NAME


@pytest.mark.parametrize("window", [None, 2])
def test_packs_of_several_stretches(window: int | None) -> None:
    """Keys of a shared path are copied for each stretch; their gradients come together again."""
    samples, loss, model = (
        make_stepwise_samples(rollouts=24, steps=12, window=window),
        METHODS["hgpo"]().loss,
        model_of("qwen2"),
    )
    assert loss is not None
    (packed,) = pack(samples, token_budget=100_000, gate=0.0)
    assert len(packed) > 2 * attention_gpu.STRETCH
    _, expected = update(model, loss, samples, pad_within_budget(samples, token_budget=8192))
    assert apart(update(model, loss, samples, [packed])[1], expected) < 1e-5


@pytest.mark.parametrize("name", LOSSES)
def test_every_loss_has_the_gradient_of_padded_rows(name: str) -> None:
    samples, loss, model = rollouts(2), METHODS[name]().loss, model_of("qwen2")
    assert loss is not None
    expected_loss, expected = update(model, loss, samples, pad_rows(samples))
    total, gradient = update(model, loss, samples, pack(samples, token_budget=1500, gate=0.0, unit=loss.unit))
    assert total == pytest.approx(expected_loss, rel=1e-4, abs=1e-6)
    assert apart(gradient, expected) < 1e-5


@pytest.mark.parametrize("share", [True, False])
def test_token_credit_and_token_masks_have_the_gradient_of_padded_rows(share: bool) -> None:
    samples, loss, model = with_token_credit(rollouts(2)), METHODS["hgpo"]().loss, model_of("qwen2")
    assert loss is not None
    _, expected = update(model, loss, samples, pad_rows(samples))
    packs = pack(samples, token_budget=1500, gate=0.0, share=share, unit=loss.unit)
    assert apart(update(model, loss, samples, packs)[1], expected) < 1e-5


def test_checkpointed_layers_and_compiled_ones_have_the_same_gradient() -> None:
    samples, loss = rollouts(None), METHODS["hgpo"]().loss
    assert loss is not None
    packs = pack(samples, token_budget=1500, gate=0.0, unit=loss.unit)
    _, expected = update(model_of("qwen2"), loss, samples, packs)
    again = model_of("qwen2")
    _checkpoint_layers(again)  # type: ignore[arg-type]
    assert apart(update(again, loss, samples, packs)[1], expected) < 1e-5
    for layer in again.model.layers:  # type: ignore[union-attr]
        layer.compile(dynamic=True)
    assert apart(update(again, loss, samples, packs)[1], expected) < 1e-5


def test_checkpointed_layers_and_compiled_ones_in_half_precision() -> None:
    """As the learner trains: float32 weights under autocast, packs read over chains."""
    samples, loss = rollouts(2), SMOOTH
    exact = update(model_of("qwen2"), loss, samples, pad_rows(samples))[1]
    packs = pack(samples, token_budget=1500, gate=0.0)
    model = model_of("qwen2")
    with torch.autocast("cuda", dtype=torch.bfloat16):
        noise = apart(update(model, loss, samples, pad_rows(samples))[1], exact)
        _checkpoint_layers(model)  # type: ignore[arg-type]
        assert apart(update(model, loss, samples, packs)[1], exact) < 1.25 * noise
        for layer in model.model.layers:  # type: ignore[union-attr]
            layer.compile(dynamic=True)
        assert apart(update(model, loss, samples, packs)[1], exact) < 1.25 * noise


@pytest.mark.parametrize("window", [None, 2])
def test_attention_over_chains_is_that_of_the_mask(window: int | None) -> None:
    """In bfloat16, to its rounding: a wrong key would show in the first digit."""
    torch.manual_seed(0)
    (packed,) = (each.to("cuda") for each in pack(rollouts(window), token_budget=100_000, gate=0.0))
    query = torch.randn(1, 4, len(packed), 32, device="cuda", dtype=torch.bfloat16, requires_grad=True)
    key, value = (torch.randn_like(query[:, :2]).requires_grad_() for _ in range(2))
    asked = {
        name: each for name, each in attention_gpu.make_inputs(packed, torch.bfloat16, 32).items() if "_ids" not in name
    }
    output, _ = attention_gpu.attend_to_pack(nn.Identity(), query, key, value, scaling=0.3, **asked)
    states = (query, key, value)
    exact = [each.float() for each in states]
    expected = nn.functional.scaled_dot_product_attention(
        *exact, attn_mask=make_dense_mask(packed.end), scale=0.3, enable_gqa=True
    ).transpose(1, 2)
    weight = torch.randn_like(expected)
    assert apart(output.float(), expected) < 5e-3
    ours, theirs = (torch.autograd.grad((each * weight).sum(), states) for each in (output, expected))
    for one, other in zip(ours, theirs, strict=True):
        assert apart(one.float(), other.float()) < 1e-2


@pytest.mark.parametrize("share", [True, False])
def test_bfloat16_is_within_the_noise_of_padded_rows(share: bool) -> None:
    """Noise: two paddings of the same rows, against float32."""
    samples, loss = rollouts(None), SMOOTH
    exact = update(model_of("qwen2"), loss, samples, pad_rows(samples))[1]
    model = model_of("qwen2").bfloat16()
    noise = [apart(update(model, loss, samples, pad_rows(samples, num_rows=rows))[1], exact) for rows in (7, 20)]
    packs = pack(samples, token_budget=1500, gate=0.0, share=share, unit=loss.unit)
    assert apart(update(model, loss, samples, packs)[1], exact) < 1.25 * max(noise)


def test_autocast_runs_packs_too() -> None:
    samples, loss, model = rollouts(2), SMOOTH, model_of("llama")
    exact = update(model, loss, samples, pad_rows(samples))[1]
    with torch.autocast("cuda", dtype=torch.bfloat16):
        rows = update(model, loss, samples, pad_rows(samples))[1]
        for share in (True, False):
            packs = pack(samples, token_budget=1500, gate=0.0, share=share)
            assert apart(update(model, loss, samples, packs)[1], exact) < 1.25 * apart(rows, exact)


def test_lora_on_a_bfloat16_model() -> None:
    samples, loss = rollouts(2), SMOOTH
    exact = update(_with_adapter(torch.float32), loss, samples, pad_rows(samples))[1]
    model = _with_adapter(torch.bfloat16)
    noise = [apart(update(model, loss, samples, pad_rows(samples, num_rows=rows))[1], exact) for rows in (7, 20)]
    shared = update(model, loss, samples, pack(samples, token_budget=1500, gate=0.0))[1]
    assert apart(shared, exact) < 1.25 * max(noise)


def _with_adapter(dtype: torch.dtype) -> nn.Module:
    """A model with an adapter that does something, the same each time; the adapter is float32."""
    peft = pytest.importorskip("peft", reason="needs peft")
    model = peft.get_peft_model(model_of("llama").to(dtype), peft.LoraConfig(r=4, target_modules="all-linear")).cuda()
    torch.manual_seed(1)
    for name, value in model.named_parameters():
        if "lora_" in name:
            nn.init.normal_(value, std=0.02)
    network: nn.Module = model
    return network


def test_lengths_and_vocabulary() -> None:
    assert max(max(sample.token_ids) for sample in rollouts()) < VOCABULARY
    assert max(len(sample.token_ids) for sample in rollouts()) > 2 * attention_gpu.BLOCK
