"""Runs of a forest, each with the keys of its path: with a kernel that runs anywhere, attention is that of the mask."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise

import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention as sdpa

from groupwise.batching import Pack, dense_mask, flash_runs, gpu_attention, pack
from groupwise.batching.gpu_attention import inputs
from groupwise.batching.runs import Runs
from tests.equivalence.rollouts import stepwise, tangled


def _rows(
    states: Sequence[torch.Tensor], bounds: Sequence[torch.Tensor], longest: Sequence[int], scale: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """Causal attention row by row, the last query at the last key; (length, heads, width)."""
    found = [
        (_shares(query, key, scale) @ _repeated(value, query)).transpose(0, 1)
        for query, key, value in _each_row(states, bounds, longest)
    ]
    return torch.cat(found), states[0].new_zeros(states[0].shape[1::-1])


def _rows_backward(
    gradient: torch.Tensor,
    found: Sequence[torch.Tensor],
    states: Sequence[torch.Tensor],
    bounds: Sequence[torch.Tensor],
    longest: Sequence[int],
    scale: float,
) -> list[torch.Tensor]:
    gradients: list[list[torch.Tensor]] = [[], [], []]
    starts = bounds[0].tolist()
    for number, (query, key, value) in enumerate(_each_row(states, bounds, longest)):
        of_row = gradient[starts[number] : starts[number + 1]].transpose(0, 1)
        shares = _shares(query, key, scale)
        of_shares = of_row @ _repeated(value, query).mT
        of_scores = shares * (of_shares - (of_shares * shares).sum(-1, keepdim=True)) * scale
        of_states = of_scores @ _repeated(key, query), of_scores.mT @ query, shares.mT @ of_row
        heads = (query.shape[0], key.shape[0], key.shape[0])
        for all_rows, one, num in zip(gradients, of_states, heads, strict=True):
            all_rows.append(one.unflatten(0, (num, -1)).sum(1).transpose(0, 1))
    return [torch.cat(each) for each in gradients]


def _each_row(
    states: Sequence[torch.Tensor], bounds: Sequence[torch.Tensor], longest: Sequence[int]
) -> Iterator[tuple[torch.Tensor, torch.Tensor, torch.Tensor]]:
    query, key, value = states
    for (low, high), (first, last) in zip(*(pairwise(each.tolist()) for each in bounds), strict=True):
        assert high - low <= longest[0]
        assert last - first <= longest[1]
        yield (
            query[low:high].transpose(0, 1),
            key[first:last].transpose(0, 1),
            value[first:last].transpose(0, 1),
        )


def _shares(query: torch.Tensor, key: torch.Tensor, scale: float) -> torch.Tensor:
    scores = query @ _repeated(key, query).mT * scale
    seen = torch.ones(scores.shape[1:], dtype=torch.bool).tril(scores.shape[2] - scores.shape[1])
    return scores.masked_fill(~seen, float("-inf")).softmax(-1)


def _repeated(states: torch.Tensor, query: torch.Tensor) -> torch.Tensor:
    return states.repeat_interleave(query.shape[0] // states.shape[0], 0)


@pytest.fixture
def _any_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flash_runs, "is_known_to", lambda device, dtype, width: dtype == torch.bfloat16)
    monkeypatch.setattr(flash_runs, "_flash", _rows)
    monkeypatch.setattr(flash_runs, "_flash_backward", _rows_backward)


def _packs() -> list[Pack]:
    several = [stepwise(attempts=3, steps=6, window=window) for window in (None, 2)]
    laid = [pack(samples, token_budget=10_000, gate=0.0) for samples in (*several, tangled())]
    plain = pack(several[0], token_budget=10_000, share=False)
    return [_with_runs(each) for packs in (*laid, plain) for each in packs]


def _with_runs(placed: Pack) -> Pack:
    """As on a GPU."""
    return replace(placed, runs=Runs.of(placed.position_ids[0].numpy()))


@pytest.mark.usefixtures("_any_machine")
@pytest.mark.parametrize("placed", _packs())
def test_attention_and_its_gradients_are_those_of_the_mask(placed: Pack) -> None:
    torch.manual_seed(0)
    query = torch.randn(1, 4, len(placed), 8, requires_grad=True)
    key, value = (torch.randn(1, 2, len(placed), 8, requires_grad=True) for _ in range(2))
    asked = {name: each for name, each in inputs(placed, torch.bfloat16, 8).items() if not name.endswith("_ids")}
    assert ("key_copies" in asked) == (placed.raw_tokens > len(placed))
    found, _ = gpu_attention.attention(torch.nn.Identity(), query, key, value, scaling=0.3, **asked)
    expected = sdpa(query, key, value, attn_mask=dense_mask(placed), scale=0.3, enable_gqa=True).transpose(1, 2)
    torch.testing.assert_close(found, expected)
    weight = torch.randn_like(found)
    ours, theirs = (torch.autograd.grad((each * weight).sum(), (query, key, value)) for each in (found, expected))
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-4)


@pytest.mark.usefixtures("_any_machine")
def test_rows_side_by_side_are_given_by_where_they_begin() -> None:
    samples = stepwise(attempts=2, window=2)
    (placed,) = (_with_runs(each) for each in pack(samples, token_budget=10_000, share=False))
    found = inputs(placed, torch.bfloat16, 8)
    assert found["attention_mask"].shape == (1, 1, 1, 1)  # a stand-in: nothing is masked
    ends = torch.tensor([len(sample.token_ids) - 1 for sample in samples]).cumsum(0)
    assert found["cu_seq_lens_q"].tolist() == [0, *ends.tolist()]
    assert found["max_length_q"] == max(len(sample.token_ids) - 1 for sample in samples)
    assert found["cu_seq_lens_k"].tolist() == found["cu_seq_lens_q"].tolist()
    assert "key_copies" not in found
    assert "cu_seq_lens_q" not in inputs(placed, torch.float32, 8)  # flash attention has no float32


def test_flash_attention_is_for_half_precision_on_a_gpu() -> None:
    assert not flash_runs.is_known_to(torch.device("cpu"), torch.bfloat16, 64)
    assert not flash_runs.is_known_to(torch.device("cuda"), torch.float32, 64)
    assert not flash_runs.is_known_to(torch.device("cuda"), torch.bfloat16, 20)
    assert not flash_runs.is_known_to(torch.device("cuda"), torch.bfloat16, 320)


@pytest.mark.usefixtures("_any_machine")
@pytest.mark.parametrize("placed", _packs())
def test_compilers_are_told_the_truth_about_it(placed: Pack) -> None:
    """Shapes, strides, gradients: what torch checks of an operation, then a whole graph of it."""
    states = [torch.randn(len(placed), heads, 8, requires_grad=True) for heads in (4, 2, 2)]
    asked = inputs(placed, torch.bfloat16, 8)
    bounds = [asked["cu_seq_lens_q"], asked["cu_seq_lens_k"]]
    longest = [asked["max_length_q"], asked["max_length_k"]]
    torch.library.opcheck(flash_runs._attend, (*states, bounds, longest, asked.get("key_copies", []), 0.3))
    settings = {name: each for name, each in asked.items() if not name.endswith("_ids")}

    def attention(*states: torch.Tensor) -> torch.Tensor:
        rows = [each.transpose(0, 1)[None] for each in states]
        return gpu_attention.attention(torch.nn.Identity(), *rows, scaling=0.3, **settings)[0]

    compiled = torch.compile(attention, backend="aot_eager", fullgraph=True, dynamic=True)
    expected, found = attention(*states), compiled(*states)
    torch.testing.assert_close(found, expected)
    ours, theirs = (torch.autograd.grad(each.square().sum(), states) for each in (found, expected))
    torch.testing.assert_close(ours, theirs)
