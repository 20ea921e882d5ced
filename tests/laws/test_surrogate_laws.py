"""Every surrogate that says its loss scales with credit has none, and no gradient, without."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from hypothesis import given
from hypothesis import strategies as st

from groupwise.losses.surrogates import Clip
from groupwise.losses.token_columns import TokenColumns
from groupwise.parts.part import Part, load_catalogue

SURROGATES = [*(part() for part in load_catalogue("surrogate").values()), Clip(low=0.1, high=0.3, dual=3.0)]


@pytest.mark.parametrize("surrogate", SURROGATES)
@given(ratios=st.lists(st.floats(0.01, 100.0), min_size=1, max_size=8))
def test_without_credit_there_is_no_loss_and_no_gradient(surrogate: Part, ratios: list[float]) -> None:
    assert surrogate.scales_with_credit  # type: ignore[attr-defined]
    logp = torch.tensor(ratios).log().requires_grad_()
    number = torch.arange(len(ratios))
    columns = TokenColumns(
        logp=logp,
        logp_behaviour=torch.zeros(len(ratios)),
        logp_old=torch.zeros(len(ratios)),
        advantage=torch.zeros(len(ratios)),
        mask=torch.ones(len(ratios), dtype=torch.bool),
        sample=number,
        step=torch.zeros_like(number),
        trajectory=number,
        channels=dict.fromkeys(getattr(surrogate, "channels", ()), torch.rand(len(ratios))),
    )
    loss = surrogate(logp.exp(), columns).loss  # type: ignore[operator]
    assert not loss.any()
    (gradient,) = torch.autograd.grad(loss.sum(), logp)
    assert not gradient.any()
