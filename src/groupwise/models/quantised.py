"""Weights below an adapter in four bits (QLoRA), by bitsandbytes: normal floats in blocks of 64, with 8-bit scales.

Source: Dettmers et al. 2023, arXiv:2305.14314. Weights are quantized on the device of the model, when it is moved there
(`model.to`): a GPU needs seconds, a CPU a quarter of an hour.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from groupwise.system.errors import ConfigError

BYTES_OF_WEIGHT = 0.5 + 1 / 64 + 4 / (64 * 256)
"""Bytes per quantized parameter: four bits, 1/64 of its block's 8-bit scale, and of the 32-bit scale of 256 scales."""


def check_quantising(*, has_adapter: bool) -> None:
    """Fail if quantized weights would have to train, or if bitsandbytes is missing."""
    if not has_adapter:
        raise ConfigError(
            "model.quantise: all weights would train, and four bits cannot; set model.lora_rank, or leave "
            "model.quantise out"
        )
    _import_bitsandbytes()


def quantise_layers(model: Any, *, dtype: torch.dtype) -> None:
    """Replace the linear layers except the output layer; they are quantized once the model is moved to its device.

    The layers compute in `dtype`.
    """
    linear = _import_bitsandbytes().nn
    head = model.get_output_embeddings()
    layers = [
        (name, layer) for name, layer in model.named_modules() if isinstance(layer, nn.Linear) and layer is not head
    ]
    if not layers:
        raise ConfigError(
            f"model.quantise: {type(model).__name__} has no layers of torch's Linear, which alone can be kept in four "
            "bits; leave model.quantise out, or take another model"
        )
    for name, layer in layers:
        has_bias = layer.bias is not None
        narrow = linear.Linear4bit(
            layer.in_features, layer.out_features, bias=has_bias, compute_dtype=dtype, quant_type="nf4", device="meta"
        )
        narrow.weight = linear.Params4bit(
            layer.weight.data, requires_grad=False, quant_type="nf4", compress_statistics=True, module=narrow
        )
        narrow.bias = layer.bias
        narrow.compute_type_is_set = True  # else the first input decides
        # In evaluation mode, which the learner uses, its packed form for some CPUs has no gradients.
        narrow.support_avx512bf16_for_cpu = False
        parent, _, last = name.rpartition(".")
        setattr(model.get_submodule(parent), last, narrow)
    model.is_loaded_in_4bit = True  # by this, peft chooses the layers of its adapter


def is_quantised(model: nn.Module) -> bool:
    return any(type(value).__name__ == "Params4bit" for value in model.parameters())


@torch.no_grad()
def merge_quantised(model: Any) -> Any:
    """A whole model in its compute precision: the dequantized weights plus the adapter.

    Not the original weights: the adapter was trained on the quantized ones.
    """
    from transformers import AutoModelForCausalLM

    dequantise = _import_bitsandbytes().functional.dequantize_4bit
    below = model.get_base_model()
    whole = AutoModelForCausalLM.from_config(below.config, dtype=below.get_input_embeddings().weight.dtype)
    weights = {
        name.replace(".base_layer.", "."): dequantise(value.data, value.quant_state)
        if type(value).__name__ == "Params4bit"
        else value
        for name, value in below.named_parameters()
        if ".lora_" not in name
    }
    for name, layer in below.named_modules():
        if hasattr(layer, "get_delta_weight"):
            weight = weights[f"{name}.weight"]
            weights[f"{name}.weight"] = (weight.float() + layer.get_delta_weight("default").float()).to(weight.dtype)
    whole.load_state_dict({**whole.state_dict(), **weights})
    whole.generation_config = below.generation_config  # not part of the config
    return whole


def _import_bitsandbytes() -> Any:
    try:
        import bitsandbytes
    except ImportError as error:
        raise ConfigError(
            "model.quantise: bitsandbytes, which quantises, is not installed "
            f"({error}); pip install 'groupwise[qlora]', or leave model.quantise out"
        ) from None
    return bitsandbytes
