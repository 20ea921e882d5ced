"""Weights below an adapter in four bits (QLoRA), by bitsandbytes: normal floats of blocks of 64, scales of eight bits.

Source: Dettmers et al. 2023, arXiv:2305.14314. Numbers are quantised where the model computes: when it is put there
(`model.to`), since a processor takes a quarter of an hour for what a GPU does in seconds.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from groupwise.system.errors import ConfigError

BYTES_OF_WEIGHT = 0.5 + 1 / 64 + 4 / (64 * 256)
"""Of a quantised weight: four bits, a share of its block's scale in eight bits, and of that scale's own in 32."""


def check_quantising(*, has_adapter: bool) -> None:
    """Refuse to quantise weights that would have to train, or without the package that does it."""
    if not has_adapter:
        raise ConfigError(
            "model.quantise: all weights would train, and four bits cannot; set model.lora_rank, or leave "
            "model.quantise out"
        )
    _import_bitsandbytes()


def quantise_layers(model: Any, *, dtype: torch.dtype) -> None:
    """Have every linear layer of a loaded model but its output layer quantised once the model is put on its device.

    Args:
        model: As transformers loaded it.
        dtype: What the layers compute in.
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
        # What it packs for some processors in evaluation mode, in which the learner runs a model, has no gradients.
        narrow.support_avx512bf16_for_cpu = False
        parent, _, last = name.rpartition(".")
        setattr(model.get_submodule(parent), last, narrow)
    model.is_loaded_in_4bit = True  # what peft looks at to choose the layers of its adapter


def is_quantised(model: nn.Module) -> bool:
    """Whether layers of a model are in four bits."""
    return any(type(value).__name__ == "Params4bit" for value in model.parameters())


@torch.no_grad()
def merge_quantised(model: Any) -> Any:
    """A whole model in the precision that it computes in: the weights that four bits stand for, and the adapter's part.

    Not the weights that were quantised: the adapter was trained beside what four bits made of them.
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
    whole.generation_config = below.generation_config  # which its config does not hold
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
