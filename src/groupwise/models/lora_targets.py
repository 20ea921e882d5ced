"""Which layers of a model a LoRA adapter sits on, by name, and whether an adapter is the one that is asked for.

Both are checked before any weight is read.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from typing import Any, Final

from groupwise.core.errors import ConfigError
from groupwise.core.text.safe_text import quote_line
from groupwise.models.folder import Adapter, explain_unloadable, read_config

ALL_LINEAR: Final = "all-linear"
"""Every linear layer but the output layer, in peft's words."""
NARROWING: Final = ("exclude_modules", "layers_to_transform", "layers_pattern", "rank_pattern", "alpha_pattern")
"""Settings of an adapter that make some layers differ from the others, which a run file has no words for."""


def list_linear_layers(path: str) -> list[str]:
    """Full names of the linear layers of a folder's or a hub name's model, in its order, without its output layer."""
    import torch
    from transformers import AutoModelForCausalLM
    from transformers.pytorch_utils import Conv1D

    config = read_config(path)
    try:
        with torch.device("meta"):
            model: Any = AutoModelForCausalLM.from_config(config)
    except Exception as error:  # transformers and the hub have no class in common
        raise explain_unloadable(path, error) from None
    head = model.get_output_embeddings()
    linear = (torch.nn.Linear, Conv1D)  # GPT-2's own linear layers are Conv1D
    return [name for name, module in model.named_modules() if isinstance(module, linear) and module is not head]


def check_targets(targets: str | Sequence[str], path: str) -> None:
    """Refuse a name that no linear layer of a model has; a name is the last of a layer's, or as many as one gives."""
    if targets == ALL_LINEAR:
        return
    layers = list_linear_layers(path)
    for name in targets:
        if not find_layers(layers, [name]):
            there = ", ".join(dict.fromkeys(layer.rpartition(".")[2] for layer in layers)) or "none"
            raise ConfigError(
                f"model.lora_targets: {path!r} has no linear layer {name!r} for an adapter to sit on; it has {there}"
            )


def find_layers(layers: Iterable[str], targets: object) -> set[str]:
    """The layers that targets name, in peft's words: all, a list of ends of names, or a pattern of whole names."""
    if targets == ALL_LINEAR:
        return set(layers)
    if isinstance(targets, str):
        return {layer for layer in layers if re.fullmatch(targets, layer)}
    ends = list(targets) if isinstance(targets, list | tuple | set) else []
    return {layer for layer in layers if any(layer == end or layer.endswith(f".{end}") for end in ends)}


def check_same_adapter(adapter: Adapter, rank: int, scale: float, targets: str | Sequence[str]) -> None:
    """Refuse settings of an adapter that are not those of the one in a folder."""
    for name, asked, stored in (("lora_rank", rank, adapter.rank), ("lora_scale", scale, adapter.scale)):
        if not math.isclose(asked, stored):
            raise _refuse(adapter, name, f"{stored:g}", f"{asked:g}")
    for name in NARROWING:
        if adapter.settings.get(name):
            raise _refuse(adapter, "lora_rank", f"{name} = {quote_line(repr(adapter.settings[name]))}", "none")
    layers = list_linear_layers(adapter.base)
    of_asked, of_stored = (find_layers(layers, some) for some in (targets, adapter.settings.get("target_modules")))
    if of_asked != of_stored:
        other = min(of_asked ^ of_stored)
        has = (f"none on {other}", "one there") if other in of_asked else (f"one on {other}", "none there")
        raise _refuse(adapter, "lora_targets", *has)


def _refuse(adapter: Adapter, name: str, stored: str, asked: str) -> ConfigError:
    return ConfigError(
        f"model.{name}: the adapter in {adapter.folder} has {stored}, but {asked} is asked for; leave lora_rank out to "
        "go on with that adapter, or give the folder of a whole model"
    )
