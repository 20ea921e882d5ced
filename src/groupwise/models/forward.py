"""The model as the learner runs it: in which precision, what of it is kept for the backward pass, what is compiled."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, Protocol

import torch
import torch._dynamo
from transformers import PreTrainedModel

from groupwise.batching import Pack, PaddedRows
from groupwise.core.errors import ConfigError
from groupwise.core.sample import Sample
from groupwise.models.layout_choice import lay_out
from groupwise.models.logps import compute_token_logps

MAX_VARIANTS = 64
"""Compiled variants of a layer that may exist."""


class ForwardSettings(Protocol):
    """How a model is run: the settings of the local learner have these, and what else has them serves as well."""

    @property
    def precision(self) -> Literal["float32", "bfloat16"]:
        """In which numbers the layers compute."""

    @property
    def share_prefixes(self) -> bool:
        """Whether equal beginnings are computed once."""

    @property
    def checkpoint_layers(self) -> bool:
        """Whether layers are run again in the backward pass, which keeps less in memory."""

    @property
    def compile_layers(self) -> bool:
        """Whether layers are compiled."""


class Forward:
    """Lays samples out for a model and runs it on them.

    The model stays in evaluation mode: dropout would make the learner score another policy than the one that the engine
    sampled from. Layers that are run again in the backward pass are themselves told that they train, which is what
    transformers looks at; everything inside them is not.
    """

    def __init__(self, model: PreTrainedModel, settings: ForwardSettings) -> None:
        self.model, self._settings = model.eval(), settings
        if settings.checkpoint_layers:
            _checkpoint_layers(model)
        if settings.compile_layers:
            # One variant each for gradients on and off, packs and rows, models: torch gives up at eight.
            torch._dynamo.config.recompile_limit = max(torch._dynamo.config.recompile_limit, MAX_VARIANTS)
            for layer in find_layers(model):
                layer.compile(dynamic=True)  # all have one code, so that the first one's is compiled for all

    @property
    def device(self) -> torch.device:
        """Where the model is."""
        return torch.device(next(self.model.parameters()).device)

    def lay_out(self, samples: Sequence[Sample], *, token_budget: int, unit: str) -> list[Pack | PaddedRows]:
        """Samples as micro-batches on the model's device."""
        with self._autocast():
            share = self._settings.share_prefixes
            layouts = lay_out(self.model, samples, token_budget=token_budget, share=share, unit=unit)
        return [layout.to(self.device) for layout in layouts]

    def __call__(
        self, layout: Pack | PaddedRows, *, temperature: float = 1.0, entropy: bool = False
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Log-probability of each trained token and, where asked, entropy, in float32."""
        with self._autocast():
            return compute_token_logps(self.model, layout, temperature=temperature, entropy=entropy)

    def _autocast(self) -> torch.autocast:
        narrow = self._settings.precision == "bfloat16"
        # A pass uses each weight once: narrow copies of all of them, kept to its end, would be there for nothing where
        # layers are run again on the way back.
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
            f"{type(model).__name__} has no layers that can be run one by one; leave out "
            "training.learner.checkpoint_layers and compile_layers"
        )
    return layers


def _checkpoint_layers(model: PreTrainedModel) -> None:
    # transformers 5.23 renamed the method and warns of the old name.
    enable: Any = getattr(model, "activation_checkpointing_enable", None) or model.gradient_checkpointing_enable
    enable({"use_reentrant": False})
    for layer in find_layers(model):
        drops = [
            name for name, value in vars(layer).items() if "dropout" in name and isinstance(value, float) and value
        ]
        if drops:
            raise ConfigError(
                f"{type(layer).__name__} drops activations by itself while it trains ({drops[0]}), so that the learner "
                "would score another policy than the engine's; leave out training.learner.checkpoint_layers"
            )
        layer.training = True
