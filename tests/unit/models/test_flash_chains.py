"""Attention over the chains of a forest is that of the mask, with a stand-in for the kernel that runs anywhere."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention as sdpa

from groupwise.models import attention_gpu
from groupwise.models.attention import make_dense_mask
from groupwise.models.attention_gpu import make_inputs
from groupwise.models.pack import Chains, Pack, pack
from tests.equivalence.flash_anywhere import rows, rows_backward
from tests.equivalence.rollouts import make_stepwise_samples, make_tangled_samples


@pytest.fixture
def _any_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attention_gpu, "can_attend", lambda device, dtype, width: dtype == torch.bfloat16)
    monkeypatch.setattr(attention_gpu, "_flash", rows)
    monkeypatch.setattr(attention_gpu, "_flash_backward", rows_backward)


def _packs() -> list[Pack]:
    several = [make_stepwise_samples(rollouts=3, steps=6, window=window) for window in (None, 2)]
    laid = [pack(samples, token_budget=10_000, gate=0.0) for samples in (*several, make_tangled_samples())]
    plain = pack(several[0], token_budget=10_000, share=False)
    return [_with_chains(tensor) for packs in (*laid, plain) for tensor in packs]


def _with_chains(placed: Pack) -> Pack:
    """As on a GPU."""
    return replace(placed, chains=Chains.of(placed.position_ids[0].numpy()))


@pytest.mark.usefixtures("_any_machine")
@pytest.mark.parametrize("placed", _packs())
def test_attention_and_its_gradients_are_those_of_the_mask(placed: Pack) -> None:
    torch.manual_seed(0)
    query = torch.randn(1, 4, len(placed), 8, requires_grad=True)
    key, value = (torch.randn(1, 2, len(placed), 8, requires_grad=True) for _ in range(2))
    asked = {
        name: tensor for name, tensor in make_inputs(placed, torch.bfloat16, 8).items() if not name.endswith("_ids")
    }
    assert ("key_copies" in asked) == (placed.raw_tokens > len(placed))
    actual, _ = attention_gpu.attend_to_pack(torch.nn.Identity(), query, key, value, scaling=0.3, **asked)
    mask = make_dense_mask(placed.end)
    expected = sdpa(query, key, value, attn_mask=mask, scale=0.3, enable_gqa=True).transpose(1, 2)
    torch.testing.assert_close(actual, expected)
    weight = torch.randn_like(actual)
    ours, theirs = (torch.autograd.grad((tensor * weight).sum(), (query, key, value)) for tensor in (actual, expected))
    for gradient, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(gradient, other, atol=1e-5, rtol=1e-4)


@pytest.mark.usefixtures("_any_machine")
def test_rows_side_by_side_are_given_by_where_they_begin() -> None:
    samples = make_stepwise_samples(rollouts=2, window=2)
    (placed,) = (_with_chains(tensor) for tensor in pack(samples, token_budget=10_000, share=False))
    actual = make_inputs(placed, torch.bfloat16, 8)
    assert actual["attention_mask"].shape == (1, 1, 1, 1)  # a stand-in: nothing is masked
    ends = torch.tensor([len(sample.token_ids) - 1 for sample in samples]).cumsum(0)
    assert actual["cu_seq_lens_q"].tolist() == [0, *ends.tolist()]
    assert actual["max_length_q"] == max(len(sample.token_ids) - 1 for sample in samples)
    assert actual["cu_seq_lens_k"].tolist() == actual["cu_seq_lens_q"].tolist()
    assert "key_copies" not in actual
    assert "cu_seq_lens_q" not in make_inputs(placed, torch.float32, 8)  # flash attention has no float32


def test_flash_attention_is_for_half_precision_on_a_gpu() -> None:
    assert not attention_gpu.can_attend(torch.device("cpu"), torch.bfloat16, 64)
    assert not attention_gpu.can_attend(torch.device("cuda"), torch.float32, 64)
    assert not attention_gpu.can_attend(torch.device("cuda"), torch.bfloat16, 20)
    assert not attention_gpu.can_attend(torch.device("cuda"), torch.bfloat16, 320)


@pytest.mark.few(1)
@pytest.mark.usefixtures("_any_machine")
@pytest.mark.parametrize("placed", _packs())
def test_compilers_are_told_the_truth_about_it(placed: Pack) -> None:
    """Shapes, strides, gradients: what torch checks of an operation, then a whole graph of it."""
    states = [torch.randn(len(placed), heads, 8, requires_grad=True) for heads in (4, 2, 2)]
    asked = make_inputs(placed, torch.bfloat16, 8)
    bounds = [asked["cu_seq_lens_q"], asked["cu_seq_lens_k"]]
    longest = [asked["max_length_q"], asked["max_length_k"]]
    torch.library.opcheck(attention_gpu._attend_op, (*states, bounds, longest, asked.get("key_copies", []), 0.3))
    settings = {name: tensor for name, tensor in asked.items() if not name.endswith("_ids")}

    def attention(*states: torch.Tensor) -> torch.Tensor:
        rows = [tensor.transpose(0, 1)[None] for tensor in states]
        return attention_gpu.attend_to_pack(torch.nn.Identity(), *rows, scaling=0.3, **settings)[0]

    compiled = torch.compile(attention, backend="aot_eager", fullgraph=True, dynamic=True)
    expected, actual = attention(*states), compiled(*states)
    torch.testing.assert_close(actual, expected)
    ours, theirs = (torch.autograd.grad(tensor.square().sum(), states) for tensor in (actual, expected))
    torch.testing.assert_close(ours, theirs)
