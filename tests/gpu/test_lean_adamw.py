"""On a GPU the step with moments of 8 bits is compiled: it must be the one that is computed operation by operation."""

from __future__ import annotations

import pytest
import torch

from groupwise.learner import optimizers
from groupwise.learner.optimizers import LeanAdamW

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
    pytest.mark.skipif(optimizers.find_spec("torchao") is None, reason="needs torchao: pip install 'groupwise[lean]'"),
    pytest.mark.filterwarnings("ignore"),  # of the compiler's own parts
]
SHAPES = ((64, 64), (96, 256), (128,))


def train(dtype: torch.dtype, *, keeps_masters: bool) -> list[torch.Tensor]:
    """Some steps over weights of several shapes, one of them too small for codes."""
    draw = torch.Generator("cuda").manual_seed(0)
    weights = {
        str(shape): torch.nn.Parameter(torch.randn(shape, generator=draw, device="cuda").to(dtype)) for shape in SHAPES
    }
    lean = LeanAdamW(
        weights, lr=1e-3, betas=(0.9, 0.99), eps=1e-8, weight_decay=0.1, moments="8_bit", keeps_masters=keeps_masters
    )
    for _ in range(4):
        for value in weights.values():
            value.grad = torch.randn(value.shape, generator=draw, device="cuda").to(dtype)
        lean.step()
    return [lean.state[value].get("master", value.detach()).clone() for value in weights.values()]


def test_the_compiled_step_is_the_step(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = train(torch.bfloat16, keeps_masters=True)
    assert optimizers._Compiler.works
    monkeypatch.setattr(optimizers._Compiler, "works", False)
    for value, expected in zip(compiled, train(torch.bfloat16, keeps_masters=True), strict=True):
        # A code on the border between two may fall either way, which moves a weight by a part of a step.
        assert float((value - expected).abs().max()) < 1e-3
        assert float((value - expected).abs().mean()) < 1e-5


def test_rounding_by_chance_repeats_itself_to_the_bit() -> None:
    once, again = (train(torch.bfloat16, keeps_masters=False) for _ in range(2))
    assert all(torch.equal(value, other) for value, other in zip(once, again, strict=True))
