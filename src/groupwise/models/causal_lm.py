"""The body and the head of a Hugging Face causal language model, found without patching it.

It reads only the attributes of modules, so transformers and peft need not be installed to import this.
"""

from __future__ import annotations

import inspect
import math
import os
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from groupwise.models.head import Head
from groupwise.system import processes
from groupwise.system.errors import ConfigError

TREE_LAYERS = ("full_attention", "sliding_attention")
"""Kinds of layers that read other tokens only through the attention mask."""


@dataclass(frozen=True, eq=False, kw_only=True)
class CausalLM:
    """A model's body, which turns tokens into hidden states, and its head, which turns them into logits.

    Worked example: `LlamaForCausalLM` has the body `model.model` and the head `model.lm_head`. A peft wrapper changes
    neither, because its adapters are inside the layers.
    """

    name: str
    body: nn.Module
    """Maps input_ids, attention_mask and position_ids to `last_hidden_state`."""
    head: Head
    config: Any

    @classmethod
    def of(cls, model: nn.Module) -> CausalLM:
        """Find the two halves; fail if the model's output is not head(body(tokens))."""
        inner: Any = model
        if hasattr(model, "get_base_model"):  # a peft wrapper; its adapters stay in the layers
            if getattr(getattr(model, "active_peft_config", None), "is_prompt_learning", False):
                raise ConfigError(
                    "the adapter puts virtual tokens before the prompt, which shared prefixes do not support; use LoRA"
                )
            inner = model.get_base_model()  # type: ignore[operator]
        name = type(inner).__name__
        body = inner.get_decoder() if hasattr(inner, "get_decoder") else inner
        if body is inner:  # older classes return themselves
            body = getattr(inner, getattr(inner, "base_model_prefix", ""), inner)
        layer = inner.get_output_embeddings() if hasattr(inner, "get_output_embeddings") else None
        if body is inner or body is None or layer is None:
            raise ConfigError(f"{name} is not a causal language model with a body and an output layer; load one")
        copies = getattr(layer, "modules_to_save", None)  # peft's trained copies of the original layer
        if copies is not None:
            is_copied = not layer.disable_adapters and layer.active_adapters[0] in copies
            layer = copies[layer.active_adapters[0]] if is_copied else layer.original_module
        if not isinstance(layer, nn.Linear) or not layer.weight.is_floating_point():
            kind = f"{type(layer).__module__}.{type(layer).__name__}"
            raise ConfigError(
                f"the output layer of {name} is a {kind}, not a plain linear layer; leave it out of LoRA's target "
                "modules and of quantisation"
            )
        config: Any = body.config
        scale = getattr(config, "logit_scale", None) or 1.0  # Cohere multiplies, Granite divides
        head = Head(
            weight=layer.weight,
            bias=layer.bias,
            scale=float(scale) / float(getattr(config, "logits_scaling", None) or 1.0),
            softcap=getattr(config, "final_logit_softcapping", None),
        )
        return cls(name=name, body=body, head=head, config=config)

    @property
    def attention(self) -> str:
        return str(getattr(self.config, "_attn_implementation", None) or "eager")

    @property
    def compute_dtype(self) -> torch.dtype:
        weight = next(self.body.parameters())
        device = weight.device.type
        return torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else weight.dtype

    @property
    def has_capped_scores(self) -> bool:
        return getattr(self.config, "attn_logit_softcapping", None) is not None

    @property
    def head_width(self) -> int:
        width = getattr(self.config, "head_dim", None)
        return int(width or self.config.hidden_size // self.config.num_attention_heads)

    def set_attention(self, name: str) -> None:
        self.body.set_attn_implementation(name)  # type: ignore[operator]

    def run_body(self, **inputs: Any) -> torch.Tensor:
        """Run the body on tokens, mask and positions; returns the hidden state of each token (B, W, H)."""
        hidden: torch.Tensor = self.body(**inputs, use_cache=False, return_dict=True).last_hidden_state
        return hidden

    def check_tokens(self, *, longest: int, largest_id: int) -> None:
        """Fail if the model has no position or no embedding for a token, before an index is out of bounds."""
        vocabulary = len(self.head.weight)
        if largest_id >= vocabulary:
            raise ConfigError(
                f"token id {largest_id} is outside the vocabulary of {vocabulary} of {self.name}; "
                "train on samples of the model's own tokenizer"
            )
        positions = getattr(self.config, "max_position_embeddings", None)
        if positions is not None and longest > positions:
            raise ConfigError(
                f"a sequence of {longest} tokens is longer than the {positions} positions of {self.name}; "
                "shorten the prompts or load a model with a longer context"
            )

    def check_tree(self, longest: int) -> None:
        """Fail if some layer does not follow a mask of ancestors.

        A four-dimensional mask replaces the model's own mask in every layer, so a sliding window would be ignored. That
        is harmless if no path is longer than the window.
        """
        missing = {"attention_mask", "position_ids"} - inspect.signature(self.body.forward).parameters.keys()
        if missing:
            raise ConfigError(
                f"{self.name} takes no {' and no '.join(sorted(missing))}, so its tokens cannot be packed; "
                "use padded rows, one per sample"
            )
        kinds = getattr(self.config, "layer_types", None)
        window = getattr(self.config, "sliding_window", None)
        is_used = getattr(self.config, "use_sliding_window", True) is not False
        if kinds is not None:
            is_used = "sliding_attention" in kinds
        if is_used and window is not None and longest > window:
            raise ConfigError(
                f"{self.name} has layers with an attention window of {window} tokens, and the longest sequence has "
                f"{longest}; use padded rows, one per sample, or shorten the sequences"
            )
        others = sorted(set(kinds or ()) - set(TREE_LAYERS))
        if others:
            raise ConfigError(
                f"{self.name} has layers of kind {', '.join(others)}, which do not follow an attention mask; "
                "use padded rows, one per sample"
            )


def choose_device(name: str) -> torch.device:
    """The device of a name; "auto" = a GPU if there is one."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0]
        raise ConfigError(f"device: {name!r} cannot be used ({reason}); give cpu, cuda, or auto") from None
    return device


def read_memory_size(device: torch.device) -> int:
    if device.type == "cuda":
        return int(torch.cuda.get_device_properties(device).total_memory)
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def read_free_memory(device: torch.device) -> float:
    """Bytes that are free on a device: on a GPU, with the cache of torch; else in the machine's memory."""
    if device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
        return float(free + torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device))
    if device.type not in ("cpu", "mps"):
        return math.inf  # unknown
    known = processes.read_free_memory()
    return read_memory_size(device) if known is None else known
