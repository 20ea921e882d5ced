"""What a pass over a model keeps, counted without numbers, against what autograd really saves of a small one.

The oracle runs on a CPU, where attention is torch's own: it saves queries, keys, values, output and a number a head and
token, as flash attention does, but repeats keys and values that several heads share, so heads here share none.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import Any

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from torch.utils._pytree import tree_leaves

from groupwise.learner.config import LearnerConfig
from groupwise.models.forward import Forward
from groupwise.models.outline import ModelPlan
from groupwise.training.doctor.memory_passes import (
    HeadOutline,
    MicroBatchShape,
    count_live_bytes,
    rehearse_learning,
    rehearse_reading,
)

TOKENS = 512
SHAPE = {
    "vocab_size": 64,
    "hidden_size": 48,
    "intermediate_size": 176,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
}
CONFIGS = {name: getattr(transformers, f"{name}Config")(**SHAPE) for name in ("Llama", "Qwen2", "Qwen3", "Gemma")}


def make_plan(family: str, *, has_adapter: bool) -> ModelPlan:
    from peft import LoraConfig

    lora = LoraConfig(r=4, target_modules="all-linear") if has_adapter else None
    return ModelPlan(config=CONFIGS[family], dtype=torch.bfloat16 if has_adapter else torch.float32, lora=lora)


def build(plan: ModelPlan) -> Any:
    """The model of a plan with real weights."""
    model = transformers.AutoModelForCausalLM.from_config(plan.config, dtype=plan.dtype, attn_implementation="sdpa")
    if plan.lora is None:
        return model
    from peft import get_peft_model

    return get_peft_model(model, plan.lora)


def count_saved(model: Any, settings: LearnerConfig) -> int:
    """Bytes that autograd saves of a real pass of the body; weights are not counted."""
    Forward(model, settings)
    body = model.get_base_model().model if hasattr(model, "get_base_model") else model.model
    weights = {value.untyped_storage().data_ptr() for value in model.parameters()}
    saved: dict[int, Any] = {}

    def see(tensor: Any) -> Any:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in weights:
            saved[storage.data_ptr()] = storage  # held, so that no address comes a second time
        return tensor

    def see_inputs(layer: Any, args: Any, kwargs: Any) -> None:
        for value in tree_leaves((args, kwargs)):
            if isinstance(value, torch.Tensor):
                see(value)

    if settings.checkpoint_layers:  # it holds what enters a layer, and asks no hook of ours
        for layer in body.layers:
            layer.register_forward_pre_hook(see_inputs, with_kwargs=True)
    ids = torch.zeros(1, TOKENS, dtype=torch.long)
    narrow = settings.precision == "bfloat16"
    with (
        torch.autograd.graph.saved_tensors_hooks(see, lambda tensor: tensor),
        torch.autocast("cpu", dtype=torch.bfloat16, enabled=narrow),
    ):
        body(input_ids=ids, use_cache=False)
    return sum(storage.nbytes() for storage in saved.values())


CASES = [
    *product(["Llama"], ["float32", "bfloat16"], [False, True], [False, True]),
    ("Qwen2", "bfloat16", False, False),
    ("Qwen2", "bfloat16", True, True),
    ("Qwen3", "bfloat16", False, False),
    ("Gemma", "bfloat16", True, False),
]
"""Family, precision, whether an adapter alone trains, whether layers are checkpointed."""


@pytest.mark.few(4)
@pytest.mark.parametrize(("family", "precision", "has_adapter", "is_checkpointed"), CASES)
def test_what_is_kept_is_what_autograd_saves(
    family: str, precision: Any, has_adapter: bool, is_checkpointed: bool
) -> None:
    plan, settings = (
        make_plan(family, has_adapter=has_adapter),
        LearnerConfig(precision=precision, checkpoint_layers=is_checkpointed),
    )
    shape = MicroBatchShape(tokens=TOKENS, predicting=1, keys=TOKENS)
    counted = rehearse_learning(plan.draw(), settings, shape, adds_gradients=True)
    assert counted.kept == pytest.approx(count_saved(build(plan), settings), rel=0.02)
    assert counted.peak > counted.kept


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_layers_in_four_bits_are_outlined_as_they_are(precision: Any) -> None:
    pytest.importorskip("bitsandbytes")
    from groupwise.models.quantised import quantise_layers

    plan = replace(make_plan("Qwen2", has_adapter=True), is_quantised=True)
    below = transformers.AutoModelForCausalLM.from_config(plan.config, dtype=plan.dtype, attn_implementation="sdpa")
    quantise_layers(below, dtype=plan.dtype)
    from peft import get_peft_model

    model = get_peft_model(below, plan.lora).to("cpu")
    states = [value.quant_state for value in model.parameters() if hasattr(value, "quant_state")]
    assert len(states) == 3 * 7
    scales = sum(state.absmax.nbytes + state.state2.absmax.nbytes for state in states)
    real = sum(value.nbytes for value in model.parameters()) + scales
    assert sum(value.nbytes for value in plan.draw().parameters()) == pytest.approx(real, rel=0.01)
    settings, shape = LearnerConfig(precision=precision), MicroBatchShape(tokens=TOKENS, predicting=1, keys=TOKENS)
    counted = rehearse_learning(plan.draw(), settings, shape, adds_gradients=True)
    assert counted.kept == pytest.approx(count_saved(model, settings), rel=0.02)


def test_an_outline_has_the_weights_of_its_model_and_takes_none_of_their_memory() -> None:
    plan = make_plan("Llama", has_adapter=True)
    own, real = (dict(m.named_parameters()) for m in (plan.draw(), build(plan)))
    assert {name: (v.shape, v.dtype, v.requires_grad) for name, v in own.items()} == {
        name: (v.shape, v.dtype, v.requires_grad) for name, v in real.items()
    }
    assert sum(value.numel() for value in ModelPlan(config=transformers.Qwen2Config()).draw().parameters()) > 4e9


def test_gradients_that_are_there_are_not_counted_and_new_ones_are() -> None:
    settings, shape = LearnerConfig(checkpoint_layers=True), MicroBatchShape(tokens=8, predicting=8, keys=8)
    there, new = (
        rehearse_learning(make_plan("Llama", has_adapter=False).draw(), settings, shape, adds_gradients=adds)
        for adds in (True, False)
    )
    gradients = sum(value.numel() * 4 for value in make_plan("Llama", has_adapter=False).draw().parameters())
    assert new.peak >= gradients > there.peak
    assert new.kept == there.kept


def test_the_head_holds_three_tiles_and_the_gradient_of_its_weight() -> None:
    plan = ModelPlan(config=transformers.LlamaConfig(**{**SHAPE, "vocab_size": 100_000, "num_hidden_layers": 1}))
    model = plan.draw()
    with count_live_bytes(model) as live:
        hidden = torch.empty(3000, 48, dtype=torch.bfloat16, requires_grad=True)
        live.start()
        score = HeadOutline.apply(hidden, model.lm_head.weight, 1000).sum()
        assert live.now < 20_000, "log-probs of the nodes"
        score.backward()
        tile, weight = 1000 * 32_768 * 2, 100_000 * 48
        # Tiles, the weight in bfloat16 and its gradient; then rows of hidden width and one product.
        assert 0 <= live.peak - (3 * tile + weight * 2 + weight * 4) < 10e6


def test_reading_keeps_nothing_from_layer_to_layer() -> None:
    few, many = (
        rehearse_reading(ModelPlan(config=transformers.LlamaConfig(**{**SHAPE, "num_hidden_layers": num})).draw(), 512)
        for num in (2, 8)
    )
    assert few == many > 512 * 176 * 4 * 2


def test_bytes_of_views_count_once_and_go_with_the_last_of_them() -> None:
    model = make_plan("Llama", has_adapter=False).draw()
    with count_live_bytes(model) as live:
        first = torch.empty(100)
        view = first[:50]
        assert (live.now, live.peak) == (400, 400)
        del first
        assert live.now == 400
        del view
        assert (live.now, live.peak) == (0, 400)
