"""Which engine a model gets, and the precision it computes in."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Literal

import torch
from transformers import PreTrainedModel

from groupwise.engines.engine import Engine, Request
from groupwise.engines.static_cache.attention import has_kernel, measure_kernel_gap
from groupwise.engines.static_cache.engine import StaticCacheEngine, unwrap_adapter
from groupwise.engines.static_cache.own_layers import OwnLayers, has_own_layers
from groupwise.engines.transformers.engine import TransformersEngine
from groupwise.system.errors import ConfigError, EngineFault

Precision = Literal["float32", "bfloat16"]
Decoding = Literal["auto", "eager", "graphs"]
CompileParts = bool | Literal["auto"]

TRIAL = Request(prompt_ids=(0, 1, 2, 1, 0), seed=0, max_tokens=3)
"""What a model is asked before it decodes in lanes: it must answer as it would otherwise. Any ids do."""
TRIAL_GAP = {torch.float32: 1e-3}
"""Nats by which the two may differ, by precision; 0.5 in narrower ones, where unlikely tokens round far apart."""
KERNEL_GAP = {torch.float32: 1e-4}
"""By how much the kernel of attention may differ from torch, by precision; 0.02 in narrower ones."""
LAYERS_GAP = {torch.float32: 1e-3}
"""By how much layers of our own may differ from the model's, by precision, as a share of the last hidden states; 0.1 in
narrower ones, in which every layer rounds."""
MAX_ROUNDING = 3.0
"""How many times as far from float32 the first layers of our own may be as the model's, in narrow precisions. Right
ones were 0.9 to 1.0 times as far on a CPU, those without rotation or with attention scaled twice 8 to 94 times."""
COMPILED = ("RMSNorm", "MLP")
"""Ends of the names of classes whose modules may be compiled."""

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
    """An engine over a model of its own, whose weights it may cast. `memory` is a share of the device's.

    With `auto`, a model that cannot decode in lanes on its device decodes eagerly, and the log says why. Parts are
    compiled with graphs only, by `auto` where there are no layers of our own for the model; what fails its trial is
    left out, and the log says so.
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
        StaticCacheEngine,
        model,
        use_graphs=True,
        rows=rows,
        memory=bytes_allowed,
        batch_tokens=batch_tokens,
    )
    trials = _Trials(unwrap_adapter(model), make_engine, device, compile_parts)
    try:
        return _open_static_cache(trials)
    except (EngineFault, RuntimeError) as error:  # torch says what cannot be captured with a RuntimeError
        reason = str(error).splitlines()[0]
        if decoding == "graphs":
            raise ConfigError(f"engine.decoding: this model cannot decode in lanes ({reason}); set 'eager'") from None
        _log.warning("engine: decoding eagerly, since this model cannot decode in lanes (%s)", reason)
        return TransformersEngine(model, batch_tokens=batch_tokens)


@dataclass(frozen=True)
class _Trials:
    """Engines that may be opened over a model."""

    model: PreTrainedModel
    make_engine: Callable[..., StaticCacheEngine]
    device: torch.device
    compile_parts: CompileParts

    def list_candidates(self) -> dict[str, Callable[[], StaticCacheEngine]]:
        """Those with the kernel of attention, the fastest first, by what computes the rest."""
        if not has_kernel(self.device):
            return {}
        candidates: dict[str, Callable[[], StaticCacheEngine]] = {}
        if has_own_layers(self.model) and self.compile_parts is not True:
            candidates["layers of our own"] = lambda: self._open(OwnLayers(self.model))
        if self.compile_parts:
            candidates["compiled parts"] = self._open_compiled
        return {**candidates, "the model's own parts": self._open}

    def _open(self, layers: OwnLayers | None = None) -> StaticCacheEngine:
        engine = self.make_engine(use_kernel=True, layers=layers)
        check_kernel(engine, self.model.config.get_text_config().num_attention_heads)
        check_layers(engine)
        check_lanes(engine)
        return engine

    def _open_compiled(self) -> StaticCacheEngine:
        compile_small_parts(self.model)
        try:
            return self._open()
        except Exception:
            leave_uncompiled(self.model)
            raise


def _open_static_cache(trials: _Trials) -> StaticCacheEngine:
    """An engine that has passed its trial: the fastest of those that do, and what the others failed for."""
    failed: list[str] = []
    for name, open_candidate in trials.list_candidates().items():
        try:
            engine = open_candidate()
        except Exception as error:  # compilers fail in many ways; where it was not the kernels, the last one fails too
            reason = (str(error).splitlines() or [type(error).__name__])[0]
            failed.append(f"{name} failed the trial ({reason})")
            continue
        if failed:
            _log.warning("engine: %s decode, since %s", name, "; ".join(failed))
        return engine
    engine = trials.make_engine(use_kernel=False)
    check_lanes(engine)
    if failed:
        _log.warning("engine: torch's attention decodes, since the kernel failed its trial (%s)", reason)
    return engine


def check_decoding(decoding: Decoding, device: str) -> None:
    """Refuse graphs where there is no GPU."""
    if decoding == "graphs" and device != "cuda":
        raise ConfigError(
            f"engine.decoding: 'graphs' needs a CUDA device, but the model is on {device}; leave it at 'auto', or "
            "set device = 'cuda'"
        )


def check_shared_weights(model: PreTrainedModel, precision: Precision) -> None:
    """Refuse to share weights that the engine would have to cast: they are the learner's."""
    if precision != "bfloat16":
        return
    for name, value in model.named_parameters():
        if value.is_floating_point() and value.dtype != torch.bfloat16:
            raise ConfigError(
                f"engine.share_weights: the engine would compute in bfloat16, but {name} of the learner is "
                f"{str(value.dtype).removeprefix('torch.')}; load the model in bfloat16 (model.dtype), or set "
                "engine.precision = 'float32', which leaves weights as loaded"
            )


def compile_small_parts(model: PreTrainedModel) -> None:
    """Compile what is many small operations and touches no cache; one code for all layers, whatever the batch."""
    for module in model.modules():
        if type(module).__name__.endswith(COMPILED):
            module.compile(dynamic=True)


def leave_uncompiled(model: PreTrainedModel) -> None:
    """Take back that parts shall be compiled."""
    for module in model.modules():
        module._compiled_call_impl = None


def cast_weights(model: PreTrainedModel, dtype: torch.dtype) -> None:
    """Cast the weights in place. Buffers stay as they are: rotary frequencies rounded to bfloat16 are other ones."""
    for value in model.parameters():
        if value.is_floating_point():
            value.data = value.data.to(dtype)


def check_kernel(engine: StaticCacheEngine, num_queries: int) -> None:
    """Refuse a kernel that computes something else than torch for the heads that a model has."""
    for head in engine.heads:
        gap = measure_kernel_gap(num_queries, head, dtype=engine.dtype, device=engine.device)
        if not gap <= KERNEL_GAP.get(engine.dtype, 0.02):
            raise EngineFault(f"the kernel of attention and torch differ by {gap:.3g} for heads of {head}")


def check_layers(engine: StaticCacheEngine) -> None:
    """Refuse layers of our own that compute something else than the model's."""
    trial = engine.make_layers_trial()
    if trial is None:
        return
    gap = trial.measure_gap()
    if not gap <= LAYERS_GAP.get(engine.dtype, 0.1):
        raise EngineFault(f"layers of our own and the model's differ by {gap:.3g} of the last hidden states")
    if engine.dtype.itemsize >= torch.float32.itemsize:
        return
    times = trial.compare_rounding()
    if not times <= MAX_ROUNDING:
        raise EngineFault(f"the first layers of our own are {times:.3g} times as far from float32 as the model's")


def check_lanes(engine: StaticCacheEngine) -> None:
    """Refuse a model that says something else when it decodes in lanes than when it reads a whole sequence."""
    [answer] = engine.generate([TRIAL])
    [scores] = engine.score([(TRIAL.prompt_ids, answer.response_ids)])
    gap = max(abs(a - b) for a, b in zip(answer.logp, scores, strict=True))
    if not gap <= TRIAL_GAP.get(engine.dtype, 0.5):
        raise EngineFault(
            f"decoding in lanes and reading the same tokens at once disagree by {gap:.3g} nats; set engine.decoding = "
            "'eager'"
        )
