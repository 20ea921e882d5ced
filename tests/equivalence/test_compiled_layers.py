"""Layers that are compiled, run again in the backward pass, or both, read packs over chains as rows are read."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from groupwise.methods import METHODS
from groupwise.models import attention_gpu
from groupwise.models import forward as logps
from groupwise.models.causal_lm import CausalLM
from groupwise.models.forward import _checkpoint_layers
from groupwise.models.pack import Chains, Pack, pack, pad_rows
from tests.equivalence.flash_anywhere import rows, rows_backward
from tests.equivalence.method_losses import apart, update
from tests.equivalence.models import build
from tests.equivalence.rollouts import make_stepwise_samples, make_tangled_samples


@pytest.fixture
def _as_on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attention_gpu, "can_attend", lambda device, dtype, width: True)
    monkeypatch.setattr(attention_gpu, "_flash", rows)
    monkeypatch.setattr(attention_gpu, "_flash_backward", rows_backward)

    def make_inputs(halves: CausalLM, placed: Pack, *, dense: bool = False) -> dict[str, Any]:
        attention_gpu.register()
        halves.set_attention(attention_gpu.NAME)
        chains = Chains.of(placed.position_ids[0].numpy())
        return attention_gpu.make_inputs(replace(placed, chains=chains), halves.compute_dtype, halves.head_width)

    monkeypatch.setattr(logps, "make_pack_inputs", make_inputs)


@pytest.mark.few(1)
@pytest.mark.filterwarnings(
    "ignore:The .grad attribute of a Tensor that is not a leaf:UserWarning"
)  # the compiler looks
@pytest.mark.usefixtures("_as_on_a_gpu")
@pytest.mark.parametrize("checkpointed", [False, True])
@pytest.mark.parametrize("compiled", [False, True])
def test_gradients_are_those_of_padded_rows(checkpointed: bool, compiled: bool) -> None:
    loss = METHODS["grpo"]().loss
    assert loss is not None
    samples = [*make_tangled_samples(), *make_stepwise_samples(rollouts=3, steps=6, window=2)]
    _, expected = update(build("qwen2", "sdpa", max_position_embeddings=4096), loss, samples, pad_rows(samples))
    torch._dynamo.reset()
    model: Any = build("qwen2", "sdpa", max_position_embeddings=4096)
    if checkpointed:
        _checkpoint_layers(model)
    if compiled:
        for layer in model.model.layers:
            layer.compile(dynamic=True, backend="aot_eager")
    for share in (False, True):  # with the same layers: compiling them takes seconds
        packs = pack(samples, token_budget=500, gate=0.0, share=share)
        assert len(packs) > 1
        assert apart(update(model, loss, samples, packs)[1], expected) < 1e-5, f"{share=}"
