"""Which engine a model gets, and the precision it computes in."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import Literal

import torch
from transformers import PreTrainedModel

from groupwise.engines.engine import Engine, Request
from groupwise.engines.static_cache.attention import has_kernel, measure_kernel_gap
from groupwise.engines.static_cache.engine import StaticCacheEngine, unwrap_adapter
from groupwise.engines.static_cache.own_layers import OwnLayers, has_own_layers
from groupwise.engines.transformers_engine import TransformersEngine
from groupwise.system.errors import ConfigError, EngineFault

Precision = Literal["float32", "bfloat16"]
Decoding = Literal["auto", "eager", "graphs"]
CompileParts = bool | Literal["auto"]

TRIAL = Request(prompt_ids=(0, 1, 2, 1, 0), seed=0, max_tokens=3)
"""The trial request before a model decodes in lanes (KV-cache slots); any ids do."""
TRIAL_GAP = {torch.float32: 1e-3}
"""Allowed difference in nats, by precision; 0.5 in narrower ones, where rounding moves unlikely tokens far."""
KERNEL_GAP = {torch.float32: 1e-4}
"""Allowed difference of the attention kernel and torch, by precision; 0.02 in narrower ones."""
LAYERS_GAP = {torch.float32: 1e-3}
"""Allowed relative difference of the last hidden states of our own layers and the model's, by precision; 0.1 in
narrower ones, in which every layer rounds."""
MAX_ROUNDING = 3.0
"""Allowed distance of our first layers from float32, in narrow precisions, as a multiple of the model's own distance.
On a CPU it was 0.9 to 1.0 for correct layers, and 8 to 94 without rotation or with attention scaled twice."""
COMPILED = ("RMSNorm", "MLP")

_log = logging.getLogger(__name__)


def open_engine(
    model: PreTrainedModel,
    *,
    precision: Precision = "float32",
    decoding: Decoding = "auto",
    rows: int = 256,
    memory: float = 0.3,
    compile_parts: CompileParts = "auto",
    batch_tokens: int = 32768,
) -> Engine:
    """An engine over a model whose weights it may cast. `memory` is a fraction of the device's memory.

    With decoding `auto`, a model that cannot decode in lanes decodes eagerly, and the log says why. Parts are compiled
    only with graphs. With compile_parts `auto`, they are compiled only if there are no own layers for the model. What
    fails its trial is not used, and the log says so.
    """
    model = model.eval()
    if precision == "bfloat16":
        cast_weights(model, torch.bfloat16)
    device = torch.device(next(model.parameters()).device)
    check_decoding(decoding, device.type)
    if decoding == "eager" or device.type != "cuda":
        return TransformersEngine(model, batch_tokens=batch_tokens)
    bytes_allowed = memory * torch.cuda.get_device_properties(device).total_memory
    make_engine = partial(
        StaticCacheEngine, model, use_graphs=True, rows=rows, memory=bytes_allowed, batch_tokens=batch_tokens
    )
    try:
        return _open_static_cache(unwrap_adapter(model), make_engine, device, compile_parts)
    except (EngineFault, RuntimeError) as error:  # torch raises a RuntimeError for operations that cannot be captured
        reason = str(error).splitlines()[0]
        if decoding == "graphs":
            raise ConfigError(
                f"engine.decoding: this model cannot decode in KV-cache slots ({reason}); set 'eager'"
            ) from None
        _log.warning("engine: decoding eagerly, because this model cannot decode in KV-cache slots (%s)", reason)
        return TransformersEngine(model, batch_tokens=batch_tokens)


def _open_static_cache(
    model: PreTrainedModel,
    make_engine: Callable[..., StaticCacheEngine],
    device: torch.device,
    compile_parts: CompileParts,
) -> StaticCacheEngine:
    """The fastest engine that passes its trial; the log says why faster ones failed."""

    def open_with_kernel(layers: OwnLayers | None = None) -> StaticCacheEngine:
        engine = make_engine(use_kernel=True, layers=layers)
        num_queries = model.config.get_text_config().num_attention_heads
        for head in engine.heads:
            gap = measure_kernel_gap(num_queries, head, dtype=engine.dtype, device=engine.device)
            if not gap <= KERNEL_GAP.get(engine.dtype, 0.02):
                raise EngineFault(f"the attention kernel and torch differ by {gap:.3g} for heads of {head}")
        check_layers(engine)
        check_lanes(engine)
        return engine

    def open_compiled() -> StaticCacheEngine:
        compile_small_parts(model)
        try:
            return open_with_kernel()
        except Exception:
            leave_uncompiled(model)
            raise

    candidates: dict[str, Callable[[], StaticCacheEngine]] = {}
    if has_kernel(device):
        if has_own_layers(model) and compile_parts is not True:
            candidates["our own layers"] = lambda: open_with_kernel(OwnLayers(model))
        if compile_parts:
            candidates["compiled parts"] = open_compiled
        candidates["the model's own parts"] = open_with_kernel
    failed: list[str] = []
    for name, open_candidate in candidates.items():
        try:
            engine = open_candidate()
        except Exception as error:  # compilers raise many kinds; an error of the model itself ends the last trial below
            reason = (str(error).splitlines() or [type(error).__name__])[0]
            failed.append(f"{name} failed the trial ({reason})")
            continue
        if failed:
            _log.warning("engine: decoding with %s, because %s", name, "; ".join(failed))
        return engine
    engine = make_engine(use_kernel=False)
    check_lanes(engine)
    if failed:
        _log.warning("engine: decoding with torch's attention, because the kernel failed its trial (%s)", reason)
    return engine


def check_decoding(decoding: Decoding, device: str) -> None:
    if decoding == "graphs" and device != "cuda":
        raise ConfigError(
            f"engine.decoding: 'graphs' needs a CUDA device, but the model is on {device}; leave it at 'auto', or "
            "set device = 'cuda'"
        )


def check_shared_weights(model: PreTrainedModel, precision: Precision) -> None:
    if precision != "bfloat16":
        return
    for name, value in model.named_parameters():
        if value.is_floating_point() and value.dtype != torch.bfloat16:
            raise ConfigError(
                f"engine.share_weights: the engine would compute in bfloat16, but {name} of the learner is "
                f"{str(value.dtype).removeprefix('torch.')}; load the model in bfloat16 (model.dtype), or set "
                "engine.precision = 'float32', which does not cast weights"
            )


def compile_small_parts(model: PreTrainedModel) -> None:
    """Compile modules of many small operations that do not use the cache; the code is the same for all layers."""
    for module in model.modules():
        if type(module).__name__.endswith(COMPILED):
            module.compile(dynamic=True)


def leave_uncompiled(model: PreTrainedModel) -> None:
    """Undo `compile_small_parts`."""
    for module in model.modules():
        module._compiled_call_impl = None


def cast_weights(model: PreTrainedModel, dtype: torch.dtype) -> None:
    """Cast the weights in place. Buffers are not cast: rotary frequencies would lose their precision."""
    for value in model.parameters():
        if value.is_floating_point():
            value.data = value.data.to(dtype)


def check_layers(engine: StaticCacheEngine) -> None:
    trial = engine.make_layers_trial()
    if trial is None:
        return
    gap = trial.measure_gap()
    if not gap <= LAYERS_GAP.get(engine.dtype, 0.1):
        raise EngineFault(f"our own layers and the model's differ by {gap:.3g} of the last hidden states")
    if engine.dtype.itemsize >= torch.float32.itemsize:
        return
    times = trial.compare_rounding()
    if not times <= MAX_ROUNDING:
        raise EngineFault(f"our own first layers are {times:.3g} times as far from float32 as the model's")


def check_lanes(engine: StaticCacheEngine) -> None:
    """Raise EngineFault if a model's log-probs differ between decoding in lanes and reading the whole sequence."""
    [answer] = engine.generate([TRIAL])
    [scores] = engine.score([(TRIAL.prompt_ids, answer.response_ids)])
    gap = max(abs(a - b) for a, b in zip(answer.logp, scores, strict=True))
    if not gap <= TRIAL_GAP.get(engine.dtype, 0.5):
        raise EngineFault(
            f"log-probs of decoding in KV-cache slots and of one forward pass differ by {gap:.3g} nats; set "
            "engine.decoding = 'eager'"
        )
