"""How the learner runs the model: precision, gradient checkpointing, compiled layers, layouts and log-probs."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any, Literal, Protocol, TypeVar
from weakref import WeakKeyDictionary

import torch
import torch._dynamo
from torch import nn
from transformers import PreTrainedModel

from groupwise.data.samples import Sample, find_longest
from groupwise.models.attention import make_pack_inputs
from groupwise.models.causal_lm import CausalLM
from groupwise.models.head import Tiling, compute_head_logps
from groupwise.models.pack import Pack, PaddedRows, pack, pad_within_budget
from groupwise.system.errors import ConfigError

Result = TypeVar("Result")

MAX_VARIANTS = 64


class ForwardSettings(Protocol):
    """The settings of a learner that say how a model is run."""

    @property
    def precision(self) -> Literal["float32", "bfloat16"]: ...
    @property
    def share_prefixes(self) -> bool: ...
    @property
    def checkpoint_layers(self) -> bool: ...
    @property
    def compile_layers(self) -> bool: ...


class Forward:
    """Lays samples out for a model and runs it on them.

    The model stays in evaluation mode: with dropout, the learner would score another policy than the engine's. Layers
    that are checkpointed are in training mode, which transformers needs, but the modules inside them are not.
    """

    def __init__(self, model: PreTrainedModel, settings: ForwardSettings) -> None:
        self.model, self._settings = model.eval(), settings
        if settings.checkpoint_layers:
            _checkpoint_layers(model)
        if settings.compile_layers:
            # One variant each for gradients on and off, packs and rows, and models: torch's own limit is eight.
            torch._dynamo.config.recompile_limit = max(torch._dynamo.config.recompile_limit, MAX_VARIANTS)
            for layer in find_layers(model):
                layer.compile(dynamic=True)  # all layers share one compiled code

    @property
    def device(self) -> torch.device:
        return torch.device(next(self.model.parameters()).device)

    def lay_out(self, samples: Sequence[Sample], *, token_budget: int, unit: str) -> list[Pack | PaddedRows]:
        """Samples as packs (see `pack`); as padded rows, with a warning, if the model cannot read packs."""
        with self._autocast():
            fault = find_packing_fault(self.model, longest=find_longest(samples))
        layouts: list[Pack] | list[PaddedRows]
        if fault is None:
            share = self._settings.share_prefixes
            layouts = pack(samples, token_budget=token_budget, share=share, unit=unit)
        else:
            warnings.warn(f"{fault}; training continues with padded rows, which are slower", stacklevel=2)
            layouts = pad_within_budget(samples, token_budget=token_budget, unit=unit)
        return [layout.to(self.device) for layout in layouts]

    def __call__(
        self, layout: Pack | PaddedRows, *, temperature: float = 1.0, entropy: bool = False
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        with self._autocast():
            return self.run(compute_token_logps, layout, temperature=temperature, entropy=entropy)

    def run(self, function: Callable[..., Result], *args: Any, **kwargs: Any) -> Result:
        """Run a function of the model."""
        return function(self.model, *args, **kwargs)

    def compute_states(self, layout: Pack | PaddedRows) -> torch.Tensor:
        with self._autocast():
            return self.run(compute_predicting_states, layout)

    def _autocast(self) -> torch.autocast:
        narrow = self._settings.precision == "bfloat16"
        # With checkpointed layers, narrow copies of all weights would be kept to the end of the pass for nothing.
        keeps_casts = not self._settings.checkpoint_layers
        return torch.autocast(self.device.type, dtype=torch.bfloat16, enabled=narrow, cache_enabled=keeps_casts)


def find_layers(model: PreTrainedModel) -> list[torch.nn.Module]:
    """The layers that transformers can run again in the backward pass."""
    candidates = [module for module in model.modules() if hasattr(module, "gradient_checkpointing")]
    layers = [
        module
        for module in candidates
        if not any(inner in candidates for inner in module.modules() if inner is not module)
    ]
    if not layers:
        raise ConfigError(
            f"{type(model).__name__} has no layers that can be run one by one; remove "
            "training.learner.checkpoint_layers and compile_layers"
        )
    return layers


def _checkpoint_layers(model: PreTrainedModel) -> None:
    # transformers 5.23 renamed the method and warns about the old name.
    enable: Any = getattr(model, "activation_checkpointing_enable", None) or model.gradient_checkpointing_enable
    enable({"use_reentrant": False})
    for layer in find_layers(model):
        drops = [
            name for name, value in vars(layer).items() if "dropout" in name and isinstance(value, float) and value
        ]
        if drops:
            raise ConfigError(
                f"{type(layer).__name__} has dropout of its own in training mode ({drops[0]}), so the learner would "
                "score another policy than the engine's; remove training.learner.checkpoint_layers"
            )
        layer.training = True


# Log-probabilities of the trained tokens of a layout, and the entropies of their distributions.
#
# Axes: U predicting nodes, T trained tokens, H hidden.

TOLERANCE = {torch.float64: 1e-6, torch.float32: 1e-3, torch.bfloat16: 1.0, torch.float16: 0.25}
"""Largest difference of a log-prob between a pack and the model's own forward pass, by type; a quarter of it on
average. Bfloat16 logits between 16 and 32 are multiples of 1/8; in trained models, kernels differ by several of
them."""

CHUNK = {"cpu": 2048, "cuda": 8192}
"""Predicting nodes at a time: a GPU needs larger products, and adds to the gradient of the whole head after each."""

_passed: WeakKeyDictionary[nn.Module, set[torch.dtype]] = WeakKeyDictionary()


def compute_token_logps(
    model: nn.Module,
    layout: Pack | PaddedRows,
    *,
    temperature: float = 1.0,
    chunk: int | None = None,
    entropy: bool = False,
    dense: bool = False,
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Log-prob (T) and, if asked, entropy (T) of each trained token, in the order of the layout; both differentiable.

    The body runs once. Each distinct state that predicts a trained token goes through the head once, `chunk` at a time
    (None = by device). The softmax of the logits over `temperature` is float32. If the model has dropout and trains, a
    shared token has one draw. Whether the model can read packs is checked when samples are laid out (`check_packs`).
    """
    halves = CausalLM.of(model)
    halves.check_tokens(longest=layout.longest, largest_id=layout.largest_id)
    rows = chunk or CHUNK.get(layout.sample.device.type, CHUNK["cpu"])
    tiling = Tiling(rows=rows, temperature=temperature, entropy=entropy)
    inputs = make_pack_inputs(halves, layout, dense=dense) if isinstance(layout, Pack) else layout.inputs
    hidden = halves.run_body(**inputs).flatten(0, 1)
    # A distribution belongs to its node; several tokens may use it.
    predictions = layout.predictions
    logp, entropy_U = compute_head_logps(halves.head, hidden.index_select(0, predictions.node), predictions, tiling)
    # The gradient of index_select is added up in one order; that of indexing is not, in parallel.
    logp = logp.index_select(0, predictions.back)
    row_T = predictions.row.index_select(0, predictions.back)
    return logp, None if entropy_U is None else entropy_U.index_select(0, row_T)


def compute_predicting_states(model: nn.Module, layout: Pack | PaddedRows) -> torch.Tensor:
    """The last hidden state of each node that predicts a trained token (U, H)."""
    halves = CausalLM.of(model)
    halves.check_tokens(longest=layout.longest, largest_id=layout.largest_id)
    inputs = make_pack_inputs(halves, layout) if isinstance(layout, Pack) else layout.inputs
    return halves.run_body(**inputs).flatten(0, 1).index_select(0, layout.predictions.node)


def check_packs(model: nn.Module, *, longest: int = 1) -> None:
    """Compare log-probs of a few packed tokens with the model's own forward pass; fail if they differ.

    This finds models that ignore the mask or the positions, or that change the logits. Prefixes are packed shared and
    side by side, in the precision of training. If autocast narrows that precision, they are also compared in that of
    the weights, where rounding hides less. That pass uses a mask that is written out and needs no compiled kernel.
    The check runs once per model and precision, and restores the training mode of every module. `longest` = tokens of
    the longest sequence.
    """
    halves = CausalLM.of(model)
    halves.check_tree(longest)
    dtype = halves.compute_dtype
    if dtype in _passed.get(halves.body, ()):
        return
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        with torch.no_grad():
            if dtype != halves.head.weight.dtype:
                with torch.autocast(halves.head.weight.device.type, enabled=False):
                    _check_packs(model, halves, dense=True)
            _check_packs(model, halves)
    except (ConfigError, torch.OutOfMemoryError):
        raise
    except Exception as error:  # from a compiler or a kernel: the model can still train on rows
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise ConfigError(f"{halves.name} does not run packed ({reason}); use padded rows, one per sample") from error
    finally:
        for module, training in modes:
            module.training = training
    _passed.setdefault(halves.body, set()).add(dtype)


def _check_packs(model: nn.Module, halves: CausalLM, *, dense: bool = False) -> None:
    device, vocabulary = halves.head.weight.device, len(halves.head.weight)
    samples = [
        Sample(
            prompt_ids=tuple(token % vocabulary for token in prompt),
            response_ids=tuple(token % vocabulary for token in response),
            advantage=0.0,
            trajectory=0,
            step=0,
            group=0,
        )
        for prompt, response in PROBES
    ]
    packed_logps = []
    for share in (True, False):
        [packed] = pack(samples, token_budget=100, gate=0.0, share=share)
        packed_logps.append(compute_token_logps(model, packed.to(device), chunk=100, dense=dense)[0])
    own = []
    for sample in samples:
        tokens = torch.tensor([sample.token_ids], device=device)
        logits = model(input_ids=tokens, attention_mask=torch.ones_like(tokens), use_cache=False).logits[0].float()
        sampled = torch.tensor(sample.response_ids, device=device)
        own.append(logits[len(sample.prompt_ids) - 1 : -1].log_softmax(-1).gather(1, sampled[:, None])[:, 0])
    expected, tolerance = torch.cat(own), TOLERANCE[halves.compute_dtype]
    for logps in packed_logps:
        apart = (logps - expected).abs()
        largest, mean = float(apart.max()), float(apart.mean())
        if not (largest <= tolerance and mean <= tolerance / 4):
            raise ConfigError(
                f"{halves.name} does not run packed: log-probs of {len(expected)} tokens differ from its own forward "
                f"pass by {mean:.2g} on average, by up to {largest:.2g}; use padded rows, one per sample"
            )


PROBES = (((1, 2, 3), (4, 5)), ((1, 2, 4), (5, 1)), ((1, 2), (5,)), ((3,), (1, 2)))
"""Prompts and responses of the comparison: a fork, a prefix that ends early, and a second tree."""


def find_packing_fault(model: nn.Module, *, longest: int) -> str | None:
    """Why a model cannot read packs with sequences of this length; None = it can."""
    CausalLM.of(model)  # fails if the model has no head: then no layout works
    try:
        check_packs(model, longest=longest)
    except ConfigError as error:
        return str(error)
    return None
