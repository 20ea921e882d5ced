"""Which engine a model gets: by device, by what the model allows, by precision."""

from __future__ import annotations

import logging
import math
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from groupwise.engines import open_engine as opening
from groupwise.engines.engine import Request
from groupwise.engines.open_engine import cast_weights, check_lanes, open_engine
from groupwise.engines.static_cache.engine import LayersTrial, StaticCacheEngine
from groupwise.engines.transformers_engine import TransformersEngine
from groupwise.system.errors import ConfigError, EngineFault
from tests.unit.engines.small_models import family


@pytest.mark.parametrize("decoding", ["auto", "eager"])
def test_on_a_cpu_responses_are_decoded_eagerly(decoding: Any) -> None:
    assert type(open_engine(family("llama"), decoding=decoding)) is TransformersEngine


def test_graphs_are_refused_on_a_cpu() -> None:
    with pytest.raises(ConfigError) as caught:
        open_engine(family("llama"), decoding="graphs")
    assert str(caught.value) == (
        "engine.decoding: 'graphs' needs a CUDA device, but the model is on cpu; leave it at 'auto', or set device = "
        "'cuda'"
    )


def test_an_engine_in_bfloat16_casts_weights_and_leaves_rotary_frequencies_alone() -> None:
    model = family("llama")
    frequencies = model.model.rotary_emb.inv_freq.clone()
    engine = open_engine(model, precision="bfloat16")
    assert {value.dtype for value in model.parameters()} == {torch.bfloat16}
    assert torch.equal(model.model.rotary_emb.inv_freq, frequencies)
    assert model.model.rotary_emb.inv_freq.dtype == torch.float32
    weights = {name: value + 0.01 for name, value in family("llama").named_parameters()}
    engine.load(weights, version=1)
    for name, value in model.named_parameters():
        assert torch.equal(value, weights[name].to(torch.bfloat16))


def test_tied_weights_stay_tied_in_another_precision() -> None:
    model = family("gemma")
    cast_weights(model, torch.bfloat16)
    assert model.lm_head.weight is model.model.embed_tokens.weight


def test_a_model_in_bfloat16_decodes_in_lanes_what_it_reads_at_once() -> None:
    model = family("llama")
    cast_weights(model, torch.bfloat16)
    engine = StaticCacheEngine(model, use_graphs=False)
    assert engine.dtype == torch.bfloat16
    check_lanes(engine)


def test_a_model_that_decodes_something_else_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = StaticCacheEngine(family("llama"), use_graphs=False)
    check_lanes(engine)
    right = engine.score
    monkeypatch.setattr(engine, "score", lambda pairs: [tuple(logp - 0.01 for logp in right(pairs)[0])])
    with pytest.raises(EngineFault) as caught:
        check_lanes(engine)
    assert str(caught.value) == (
        "log-probs of decoding in KV-cache slots and of one forward pass differ by 0.01 nats; set engine.decoding = "
        "'eager'"
    )


def test_attention_that_lanes_do_not_compute_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    model = family("llama")
    engine = StaticCacheEngine(model, use_graphs=False)
    attention = model.model.layers[0].self_attn
    run = attention.forward
    monkeypatch.setattr(attention, "forward", lambda **kwargs: run(**kwargs, s_aux=torch.zeros(4)))
    with pytest.raises(EngineFault) as caught:
        engine.generate([Request(prompt_ids=(3,), seed=0, max_tokens=1)])
    assert str(caught.value) == (
        "LlamaAttention adds 's_aux' to its attention, which decoding in KV-cache slots does not support; set "
        "engine.decoding = 'eager'"
    )


class _OnGpu:
    """Stands for a CUDA device where there is none: the model stays where it is."""

    type = "cuda"


@pytest.fixture
def as_if_on_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Engines open as on a GPU, but nothing is captured or decoded."""

    class Memory:
        total_memory = 2**30

    def open_without_graphs(model: Any, **settings: Any) -> StaticCacheEngine:
        return StaticCacheEngine(model, **{**settings, "use_graphs": False})

    monkeypatch.setattr(opening._log, "disabled", False)  # import-linter, run by other tests, silences loggers
    monkeypatch.setattr(opening.torch, "device", lambda *_: _OnGpu())
    monkeypatch.setattr(opening.torch.cuda, "get_device_properties", lambda _: Memory())
    monkeypatch.setattr(opening, "StaticCacheEngine", open_without_graphs)
    monkeypatch.setattr(opening, "has_kernel", lambda _: True)
    monkeypatch.setattr(opening, "check_lanes", lambda _: None)


@pytest.mark.parametrize("gap", [0.5, math.nan, LookupError("it does not compile\nstack"), LookupError()])
def test_a_kernel_that_fails_its_trial_is_left_out_and_the_log_says_why(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, as_if_on_gpu: None, gap: Any
) -> None:
    def measure_gap(num_queries: int, head: Any, **settings: Any) -> float:
        assert (num_queries, head) == (4, (2, 8, 8))
        if isinstance(gap, Exception):
            raise gap
        return float(gap)

    monkeypatch.setattr(opening, "measure_kernel_gap", measure_gap)
    with caplog.at_level(logging.WARNING):
        engine = open_engine(family("llama"))
    assert isinstance(engine, StaticCacheEngine)
    assert not engine._use_kernel
    differs = f"the attention kernel and torch differ by {gap} for heads of (2, 8, 8)"
    reason = (str(gap).splitlines() or ["LookupError"])[0] if isinstance(gap, Exception) else differs
    assert caplog.messages == [
        f"engine: decoding with torch's attention, because the kernel failed its trial ({reason})"
    ]


def test_a_kernel_that_passes_its_trial_decodes(monkeypatch: pytest.MonkeyPatch, as_if_on_gpu: None) -> None:
    monkeypatch.setattr(opening, "measure_kernel_gap", lambda *_, **__: 1e-6)
    engine = open_engine(family("llama"))
    assert isinstance(engine, StaticCacheEngine)
    assert engine._use_kernel


@pytest.mark.parametrize("error", [EngineFault("it keeps something else"), RuntimeError("not permitted\nstack")])
def test_a_model_that_cannot_decode_in_lanes_falls_back_and_says_why(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, error: Exception
) -> None:
    class Memory:
        total_memory = 2**30

    def refuse(engine: StaticCacheEngine) -> None:
        raise error

    monkeypatch.setattr(opening._log, "disabled", False)  # import-linter, run by other tests, silences loggers
    monkeypatch.setattr(opening, "check_lanes", refuse)
    monkeypatch.setattr(opening.torch, "device", lambda *_: _OnGpu())
    monkeypatch.setattr(opening.torch.cuda, "get_device_properties", lambda _: Memory())
    reason = str(error).splitlines()[0]
    with caplog.at_level(logging.WARNING):
        engine = open_engine(family("llama"))
    assert type(engine) is TransformersEngine
    assert caplog.messages == [
        f"engine: decoding eagerly, because this model cannot decode in KV-cache slots ({reason})"
    ]
    with pytest.raises(ConfigError) as caught:
        open_engine(family("llama"), decoding="graphs")
    assert str(caught.value) == (f"engine.decoding: this model cannot decode in KV-cache slots ({reason}); set 'eager'")


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch, as_if_on_gpu: None) -> list[str]:
    """What was compiled, and taken back, in a process where kernel and layers pass their trials."""
    calls: list[str] = []
    monkeypatch.setattr(opening, "measure_kernel_gap", lambda *_, **__: 1e-6)
    monkeypatch.setattr(LayersTrial, "measure_gap", lambda _: 1e-6)
    monkeypatch.setattr(opening, "compile_small_parts", lambda _: calls.append("compiled"))
    monkeypatch.setattr(opening, "leave_uncompiled", lambda _: calls.append("taken back"))
    return calls


@pytest.mark.parametrize(
    ("name", "compile_parts", "has_layers", "calls"),
    [
        ("llama", "auto", True, []),
        ("llama", False, True, []),
        ("llama", True, False, ["compiled"]),
        ("gemma", "auto", False, ["compiled"]),
        ("gemma", False, False, []),
    ],
)
def test_parts_are_compiled_where_there_are_no_layers_of_our_own(
    compiled: list[str],
    caplog: pytest.LogCaptureFixture,
    name: str,
    compile_parts: Any,
    has_layers: bool,
    calls: list[str],
) -> None:
    engine = open_engine(family(name), compile_parts=compile_parts)
    assert isinstance(engine, StaticCacheEngine)
    assert ((engine._layers is not None), compiled) == (has_layers, calls)
    assert caplog.messages == []


def test_what_fails_its_trial_is_left_out_and_the_log_says_what(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, compiled: list[str]
) -> None:
    monkeypatch.setattr(LayersTrial, "measure_gap", lambda _: 0.5)
    with caplog.at_level(logging.WARNING):
        engine = open_engine(family("llama"))
    assert isinstance(engine, StaticCacheEngine)
    assert (engine._layers, engine._use_kernel, compiled) == (None, True, ["compiled"])
    reason = "our own layers failed the trial (our own layers and the model's differ by 0.5 of the last hidden states)"
    assert caplog.messages == [f"engine: decoding with compiled parts, because {reason}"]
    caplog.clear()

    def refuse(engine: StaticCacheEngine) -> None:
        if compiled[-1] == "compiled":
            raise RuntimeError("no compiler")

    compiled.clear()
    monkeypatch.setattr(opening, "check_lanes", refuse)
    with caplog.at_level(logging.WARNING):
        engine = open_engine(family("llama"))
    assert isinstance(engine, StaticCacheEngine)
    assert (engine._layers, engine._use_kernel, compiled) == (None, True, ["compiled", "taken back"])
    assert caplog.messages == [
        f"engine: decoding with the model's own parts, because {reason}; compiled parts failed the trial (no compiler)"
    ]


def test_parts_that_were_to_be_compiled_can_be_taken_back() -> None:
    model = family("llama")
    parts = [module for module in model.modules() if type(module).__name__ in {"LlamaRMSNorm", "LlamaMLP"}]
    assert len(parts) == 7, "two norms and a feed-forward part a layer, and the last norm"
    for module in parts:
        module._compiled_call_impl = lambda *_: None
    opening.leave_uncompiled(model)
    assert all(module._compiled_call_impl is None for module in model.modules())
