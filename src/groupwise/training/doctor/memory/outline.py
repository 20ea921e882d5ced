"""The outline of a model: its modules as they will be, over tensors that have shapes and no numbers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from transformers import AutoModelForCausalLM


@dataclass(frozen=True, kw_only=True)
class ModelPlan:
    """What a model is made of."""

    config: Any
    """Its configuration, of transformers."""
    dtype: torch.dtype = torch.float32
    """Of the loaded weights."""
    lora: Any = None
    """peft's settings of an adapter; None = all weights train."""

    def draw(self) -> Any:
        """The model, whose weights have shapes and take no memory."""
        with torch.device("meta"):
            model = AutoModelForCausalLM.from_config(self.config, dtype=self.dtype, attn_implementation="sdpa")
            if self.lora is not None:
                from peft import get_peft_model

                model = get_peft_model(model, self.lora)
        return _empty_tensors(model.eval())


def _empty_tensors(model: nn.Module) -> nn.Module:
    """Put tensors without numbers, which claim to be on a CPU, in the place of those on no device."""
    kept: dict[int, tuple[nn.Parameter, nn.Parameter]] = {}  # with the old one, so that no id comes a second time
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
