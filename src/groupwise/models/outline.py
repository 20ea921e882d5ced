"""The outline of a model: its modules, with tensors that have shapes but no numbers. No weights are read or made."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, cast

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from transformers import AutoModelForCausalLM

from groupwise.models import folder as folders
from groupwise.models.pretrained import PretrainedModel
from groupwise.models.quantised import BYTES_OF_WEIGHT
from groupwise.models.tiny import TinyModel
from groupwise.system.errors import ConfigError
from groupwise.system.text import quote_line


@dataclass(frozen=True, kw_only=True)
class ModelPlan:
    """What is needed to make the outline of a model."""

    config: Any
    dtype: torch.dtype = torch.float32
    lora: Any = None
    """peft's settings of an adapter; None = all weights train."""
    is_quantised: bool = False
    """Whether linear layers below the adapter are in four bits."""

    def draw(self) -> Any:
        """The model with weights that take no memory; forward and backward passes can be rehearsed."""
        return _empty_tensors(self.sketch().eval())

    @cached_property
    def weights(self) -> list[torch.Tensor]:
        return list(self.sketch().parameters())

    def sketch(self) -> Any:
        """The model on no device; its weights can be counted."""
        with torch.device("meta"):
            model = self._make_base()
            if self.lora is not None:
                from peft import get_peft_model

                with folders.quietly():
                    model = get_peft_model(model, self.lora)
            if self.is_quantised:
                _quantise(model)
        return model

    def _make_base(self) -> Any:
        try:
            return AutoModelForCausalLM.from_config(self.config, dtype=self.dtype, attn_implementation="sdpa")
        except Exception as error:  # transformers has no class for impossible settings
            reason = quote_line(str(error), limit=200)
            if "overflow" in reason.lower():
                raise ConfigError(
                    f"model: its sizes are beyond what any memory holds ({reason}); use a smaller model"
                ) from None
            raise ConfigError(
                f"model: transformers cannot make a model with its settings ({reason}); take a config.json of a causal "
                "language model"
            ) from None


def _quantise(model: Any) -> None:
    """Replace linear layers, with or without an adapter, by outlines of layers in four bits."""
    head = model.get_output_embeddings()
    adapted = {name for name, layer in model.named_modules() if hasattr(layer, "lora_A")}
    for name, layer in [*model.named_modules()]:
        is_plain = isinstance(layer, nn.Linear) and layer is not head
        if name in adapted or (is_plain and not any(name.startswith(f"{owner}.") for owner in adapted)):
            parent, _, last = name.rpartition(".")
            setattr(model.get_submodule(parent), last, _NarrowLayer(layer))


class _NarrowLayer(nn.Module):
    """A linear layer in four bits, as in bitsandbytes, and its adapter, as in peft."""

    def __init__(self, layer: Any) -> None:
        super().__init__()
        linear = getattr(layer, "base_layer", layer)
        self._shape = linear.out_features, linear.in_features
        size = int(linear.out_features * linear.in_features * BYTES_OF_WEIGHT)
        self.weight = nn.Parameter(torch.empty(size, dtype=torch.uint8, device="meta"), requires_grad=False)
        self.bias = linear.bias
        self._adapter = (layer.lora_A["default"], layer.lora_B["default"]) if hasattr(layer, "lora_A") else None
        for part in self._adapter or ():
            self.add_module(f"lora_{len(self._modules)}", part)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        put_out = cast(Callable[..., torch.Tensor], _NarrowProduct.apply)(hidden, self._shape)
        if self._adapter is None:
            return put_out
        put_out = put_out.clone()  # as peft does
        down, up = self._adapter
        scaled: torch.Tensor = up(down(hidden.to(down.weight.dtype))) * 1.0
        return put_out + scaled.to(put_out.dtype)


class _NarrowProduct(torch.autograd.Function):
    """A product with weights that are dequantized in the forward and again in the backward pass; nothing is kept."""

    @staticmethod
    def forward(ctx: Any, hidden: torch.Tensor, shape: tuple[int, int]) -> torch.Tensor:
        ctx.shape = shape
        return hidden @ hidden.new_empty(shape).T

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:
        return gradient @ gradient.new_empty(ctx.shape), None


def _empty_tensors(model: nn.Module) -> nn.Module:
    """Replace tensors on no device by fake ones that claim to be on a CPU."""
    kept: dict[int, tuple[nn.Parameter, nn.Parameter]] = {}  # with the old one, which keeps its id from being reused
    with FakeTensorMode():
        for module in model.modules():
            for name, value in module._parameters.items():
                if value is None:
                    continue
                if id(value) not in kept:
                    empty = torch.empty(value.shape, dtype=value.dtype)
                    kept[id(value)] = nn.Parameter(empty, requires_grad=value.requires_grad), value
                module._parameters[name] = kept[id(value)][0]
            for name, buffer in module._buffers.items():
                if buffer is not None:
                    module._buffers[name] = torch.empty(buffer.shape, dtype=buffer.dtype)
    return model


def plan_model(part: object, *, words: tuple[str, ...]) -> ModelPlan | None:
    """The plan of a part of the slot `model`; None for a user's own kind. `words` = those of the tokenizer."""
    if isinstance(part, TinyModel):
        return ModelPlan(config=part.make_config(part.open_tokenizer(words=words)[0]))
    if not isinstance(part, PretrainedModel):
        return None
    folders.check_folder(part.path)
    adapter = folders.find_adapter(part.path)
    base = folders.resolve_path(part.path) if adapter is None else adapter.base
    lora = None
    if adapter is not None or part.lora_rank:
        from peft import LoraConfig

        lora = LoraConfig(**adapter.settings) if adapter is not None else part.make_lora_settings(base)
    return ModelPlan(
        config=folders.read_config(base),
        dtype=getattr(torch, part.dtype),
        lora=lora,
        is_quantised=part.quantise == "4bit",
    )
