"""The chunked head: the worked vector of the online softmax, its gradients, and that tiles change nothing."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from groupwise.models import head
from groupwise.models.head import FusedHeadLogps, Head, Sums, Tiling, add_tile, compute_head_logps
from groupwise.models.pack import Predictions

LOGITS = (1.0, 2.0, 0.0, -1.0)
"""Worked vector: with target 1, ln of the normaliser 2.440190, log-prob -0.440190, entropy 0.947537."""


def _identity_head(**settings: float) -> Head:
    return Head(weight=torch.eye(4, dtype=torch.float64), **settings)  # type: ignore[arg-type]


def _predictions(row: list[int], target: list[int]) -> Predictions:
    return Predictions.of(np.array(row, dtype=np.int64), np.array(target, dtype=np.int64))


def _start() -> Sums:
    zero = torch.zeros(1, dtype=torch.float64)
    return torch.full_like(zero, -torch.inf), zero, zero


def _check_end(sums: Sums) -> None:
    high, total, weighed = (value.item() for value in sums)
    assert high + np.log(total) == pytest.approx(2.440190, abs=5e-7)
    assert np.log(total) - weighed / total == pytest.approx(0.947537, abs=5e-7)


def test_the_online_softmax_after_each_tile() -> None:
    z = torch.tensor([LOGITS], dtype=torch.float64)
    first = add_tile(z[:, :2].clone(), _start(), entropy=True)
    assert [value.item() for value in first] == pytest.approx([2.0, 1.367879, 2.367879 - 2 * 1.367879], abs=2e-6)
    second = add_tile(z[:, 2:].clone(), first, entropy=True)
    assert [value.item() for value in second] == pytest.approx([2.0, 1.553002, 2.318092 - 2 * 1.553002], abs=2e-6)
    _check_end(second)


def test_a_later_tile_may_hold_the_highest_logit() -> None:
    z = torch.tensor([[-1.0, 0.0, 1.0, 2.0]], dtype=torch.float64)
    _check_end(add_tile(z[:, 1:].clone(), add_tile(z[:, :1].clone(), _start(), entropy=True), entropy=True))


@pytest.mark.parametrize("columns", [1, 2, 3, 4, 100])
def test_log_prob_entropy_and_their_gradients_of_the_worked_vector(columns: int) -> None:
    tiling = Tiling(rows=1, columns=columns, entropy=True)
    gradients = []
    for output in (0, 1):
        hidden = torch.tensor([LOGITS], dtype=torch.float64, requires_grad=True)
        both = compute_head_logps(_identity_head(), hidden, _predictions([0], [1]), tiling)
        assert both[0].item() == pytest.approx(-0.440190, abs=5e-7)
        assert both[1] is not None
        assert both[1].item() == pytest.approx(0.947537, abs=5e-7)
        both[output].sum().backward()  # type: ignore[union-attr]
        assert hidden.grad is not None
        gradients.append(hidden.grad[0].tolist())
    assert gradients[0] == pytest.approx([-0.236883, 0.356086, -0.087144, -0.032059], abs=5e-7)
    assert gradients[1] == pytest.approx([0.116701, -0.326688, 0.130076, 0.079911], abs=5e-7)


@pytest.mark.parametrize("function", [head._HeadLogps, FusedHeadLogps])
@pytest.mark.parametrize("rows", [1, 2, 5, 9])
@pytest.mark.parametrize("columns", [3, 11, 100])
@pytest.mark.parametrize("softcap", [None, 2.0])
@pytest.mark.parametrize("entropy", [True, False])
def test_any_tiling_equals_the_plain_formula(
    function: type, rows: int, columns: int, softcap: float | None, entropy: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(head, "_HeadLogps", function)  # the fused one is for GPUs; its arithmetic runs anywhere
    torch.manual_seed(0)
    hidden = torch.randn(5, 4, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(11, 4, dtype=torch.float64, requires_grad=True)
    bias = torch.randn(11, dtype=torch.float64, requires_grad=True)
    row, target = [0, 0, 0, 1, 2, 3, 3, 4], [1, 1, 10, 10, 4, 0, 7, 3]
    weigh = torch.randn(8, dtype=torch.float64), torch.randn(5, dtype=torch.float64)

    def gradients(logp: torch.Tensor, spread: torch.Tensor | None) -> list[torch.Tensor]:
        loss = (weigh[0] * logp).sum() + (0.0 if spread is None else (weigh[1] * spread).sum())
        return list(torch.autograd.grad(loss, (hidden, weight, bias)))

    z = (hidden @ weight.T + bias) * 1.5
    z = z if softcap is None else softcap * torch.tanh(z / softcap)
    log_p = (z / 0.7).log_softmax(-1)
    expected_logp, expected_entropy = log_p[row, target], -(log_p.exp() * log_p).sum(-1) if entropy else None
    layer = Head(weight=weight, bias=bias, scale=1.5, softcap=softcap)
    tiling = Tiling(rows=rows, columns=columns, temperature=0.7, entropy=entropy)
    logp, actual_entropy = compute_head_logps(layer, hidden, _predictions(row, target), tiling)

    torch.testing.assert_close(logp, expected_logp)
    assert (actual_entropy is None) == (not entropy)
    if actual_entropy is not None:
        torch.testing.assert_close(actual_entropy, expected_entropy)
    for actual, expected in zip(
        gradients(logp, actual_entropy), gradients(expected_logp, expected_entropy), strict=True
    ):
        torch.testing.assert_close(actual, expected)


def test_a_frozen_head_gets_no_gradient() -> None:
    weight = torch.randn(11, 4)
    hidden = torch.randn(2, 4, requires_grad=True)
    logp, _ = compute_head_logps(Head(weight=weight), hidden, _predictions([0, 1], [3, 4]), Tiling(rows=8))
    logp.sum().backward()
    assert weight.grad is None
    assert hidden.grad is not None


def test_huge_logits_stay_finite_and_keep_their_digits() -> None:
    hidden = torch.tensor([[1e4, 1e4 - 1.0, -1e4, -1e4]])
    tiling = Tiling(rows=1, columns=3, entropy=True)
    logp, entropy = compute_head_logps(Head(weight=torch.eye(4)), hidden, _predictions([0], [1]), tiling)
    assert logp.item() == pytest.approx(-1.3132617, abs=1e-3)  # a difference of logits, which have 24 bits
    assert entropy is not None
    assert entropy.item() == pytest.approx(0.5822034, abs=1e-6)


def test_nothing_to_predict_gives_nothing() -> None:
    hidden = torch.zeros(0, 4, dtype=torch.float64, requires_grad=True)
    head = _identity_head()
    head.weight.requires_grad_()
    logp, entropy = compute_head_logps(head, hidden, _predictions([], []), Tiling(rows=4, entropy=True))
    assert entropy is not None
    assert (logp.tolist(), entropy.tolist()) == ([], [])
    (logp.sum() + entropy.sum()).backward()
    assert head.weight.grad is not None
    assert head.weight.grad.tolist() == torch.zeros(4, 4).tolist(), "and moves nothing"


def test_half_precision_states_give_float32_log_probs() -> None:
    draws = torch.Generator().manual_seed(0)
    hidden = torch.randn(2, 4, generator=draws).bfloat16().requires_grad_()
    weight = torch.randn(11, 4, generator=draws).bfloat16().requires_grad_()
    logp, _ = compute_head_logps(Head(weight=weight), hidden, _predictions([0, 1], [3, 4]), Tiling(rows=8))
    logp.sum().backward()
    wide = [value.detach().float().requires_grad_() for value in (hidden, weight)]
    expected = (wide[0] @ wide[1].T).log_softmax(-1)[[0, 1], [3, 4]]
    expected.sum().backward()
    assert logp.dtype == torch.float32
    torch.testing.assert_close(logp, expected, rtol=1e-2, atol=1e-2)
    for narrow, exact in zip((hidden, weight), wide, strict=True):
        assert narrow.grad is not None
        assert narrow.grad.dtype == torch.bfloat16
        torch.testing.assert_close(narrow.grad.float(), exact.grad, rtol=2e-2, atol=2e-2)
