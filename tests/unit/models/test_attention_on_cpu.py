"""Attention in blocks of nodes equals attention under the written-out mask."""

from __future__ import annotations

import gc
import weakref

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn import functional

from groupwise.models.attention import TreeMask, cut_blocks
from groupwise.models.forest import merge_sequences
from tests.unit.models.samples import SEQUENCES

FORK = torch.tensor([4, 3, 3, 4])  # 0-1-2 and 0-3


def _states(num_nodes: int, *, width: int = 4) -> list[torch.Tensor]:
    torch.manual_seed(0)
    return [torch.randn(1, 2, num_nodes, width, dtype=torch.float64, requires_grad=True) for _ in range(3)]


def _both(end: torch.Tensor, size: int, **settings: object) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """Output and gradients with the mask of blocks, and with the written-out one."""
    mask = TreeMask.of(end, size=size)
    results = []
    for tensor in (mask, mask.write_out()):
        states = _states(len(end))
        output = functional.scaled_dot_product_attention(*states, attn_mask=tensor, **settings)  # type: ignore[arg-type]
        weigh = torch.randn(output.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
        results.append([output, *torch.autograd.grad((output * weigh).sum(), states)])
    return results[0], results[1]


def test_a_block_sees_the_path_to_its_first_node_and_itself() -> None:
    first, second = cut_blocks(FORK, size=2)
    hidden = -torch.inf
    assert (first.nodes, first.path.tolist()) == (slice(0, 2), [])
    assert first.mask.tolist() == [[0, hidden], [0, 0]]
    assert (second.nodes, second.path.tolist()) == (slice(2, 4), [0, 1])
    assert second.mask.tolist() == [[0, 0, 0, hidden], [0, hidden, hidden, 0]]
    assert cut_blocks(FORK, size=3)[1].path.tolist() == [0]  # and no key that none of its nodes sees


def test_written_out_the_mask_is_the_interval_rule() -> None:
    mask = TreeMask.of(FORK)
    assert mask.write_out().int().tolist() == [[[[1, 0, 0, 0], [1, 1, 0, 0], [1, 1, 1, 0], [1, 0, 0, 1]]]]


@given(SEQUENCES, st.integers(1, 9))
def test_output_and_gradients_equal_those_of_the_written_out_mask(sequences: list[list[int]], size: int) -> None:
    end = torch.from_numpy(merge_sequences([[0], *sequences]).end)
    ours, expected = _both(end, size)
    for tensor, other in zip(ours, expected, strict=True):
        torch.testing.assert_close(tensor, other, rtol=1e-12, atol=1e-12)


def test_a_scale_is_honoured() -> None:
    ours, expected = _both(FORK, 2, scale=0.3)
    torch.testing.assert_close(ours[0], expected[0])
    assert not torch.allclose(ours[0], _both(FORK, 2)[0][0])


@pytest.mark.parametrize("size", [2, 100])
def test_the_mask_looks_like_a_boolean_tensor(size: int) -> None:
    mask = TreeMask.of(FORK, size=size)
    assert (tuple(mask.shape), mask.ndim, mask.dim(), mask.size(-1)) == ((1, 1, 4, 4), 4, 4, 4)
    assert (mask.dtype, mask.device.type, mask.requires_grad) == (torch.bool, "cpu", False)


def test_any_other_operation_gets_the_entries() -> None:
    mask, entries = TreeMask.of(FORK, size=2), TreeMask.of(FORK).write_out()
    assert torch.equal(mask[:, :, 1:], entries[:, :, 1:])
    assert torch.equal(torch.cat([mask, mask]), torch.cat([entries, entries]))
    assert torch.equal(torch.where(mask, 0.0, -1.0), torch.where(entries, 0.0, -1.0))
    assert torch.equal(mask.float(), entries.float())
    assert not isinstance(mask & True, TreeMask)


@pytest.mark.parametrize("rows", [1, 3])
def test_calls_it_does_not_cover_use_the_entries(rows: int) -> None:
    """A batch, dropout, a mask as fourth argument: torch's own attention under the written-out mask."""
    states = [tensor.detach().expand(rows, 2, 4, 4) for tensor in _states(4)]
    mask = TreeMask.of(FORK, size=2)
    expected = functional.scaled_dot_product_attention(*states, mask.write_out())
    torch.testing.assert_close(functional.scaled_dot_product_attention(*states, mask), expected)
    torch.testing.assert_close(functional.scaled_dot_product_attention(*states, attn_mask=mask), expected)
    dropped = functional.scaled_dot_product_attention(*states, attn_mask=mask, dropout_p=1.0)
    assert not dropped.any()


def test_without_gradient_nothing_is_kept() -> None:
    with torch.no_grad():
        output = functional.scaled_dot_product_attention(*_states(4), attn_mask=TreeMask.of(FORK, size=2))
    assert not output.requires_grad


def test_a_kept_graph_can_be_walked_twice() -> None:
    states = _states(4)
    output = functional.scaled_dot_product_attention(*states, attn_mask=TreeMask.of(FORK, size=2)).sum()
    first = torch.autograd.grad(output, states, retain_graph=True)
    second = torch.autograd.grad(output, states)
    assert all(torch.equal(tensor, other) for tensor, other in zip(first, second, strict=True))


def test_nothing_is_kept_once_the_gradients_are_there(monkeypatch: pytest.MonkeyPatch) -> None:
    attended: list[weakref.ref[torch.Tensor]] = []
    plain = functional.scaled_dot_product_attention

    def count_calls(*states: torch.Tensor, **settings: object) -> torch.Tensor:
        output = plain(*states, **settings)  # type: ignore[arg-type]
        attended.append(weakref.ref(output))
        return output

    monkeypatch.setattr(functional, "scaled_dot_product_attention", count_calls)
    gc.collect()
    gc.disable()  # a cycle would wait for it, gigabytes at a time
    try:
        query, key, value = (torch.randn(1, 2, 300, 8, requires_grad=True) for _ in range(3))
        mask = TreeMask.of(torch.full((300,), 300))
        TreeMask.attend(query, key, value, attn_mask=mask).sum().backward()  # type: ignore[union-attr]
        assert len(attended) == 3
        assert [tensor() for tensor in attended] == [None] * 3
    finally:
        gc.enable()
