"""Any Hugging Face causal language model: from a local folder, or by its name on a hub."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar, Final, Literal

from pydantic import Field, model_validator

from groupwise.models.folder import ModelPath, StoredAdapter, explain_unloadable, read_config
from groupwise.models.quietly import quietly
from groupwise.parts.outside import WITHOUT_TRUST, may_run
from groupwise.parts.part import Part
from groupwise.system.errors import ConfigError
from groupwise.system.text import quote_line

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


def check_same_adapter(adapter: StoredAdapter, rank: int, scale: float, targets: str | Sequence[str]) -> None:
    """Refuse settings of an adapter that are not those of the one in a folder."""
    unlike = [
        (name, f"{stored:g}", f"{asked:g}")
        for name, asked, stored in (("lora_rank", rank, adapter.rank), ("lora_scale", scale, adapter.scale))
        if not math.isclose(asked, stored)
    ]
    narrowed = [name for name in NARROWING if adapter.settings.get(name)]
    unlike += [("lora_rank", f"{name} = {quote_line(repr(adapter.settings[name]))}", "none") for name in narrowed]
    if not unlike:
        layers = list_linear_layers(adapter.base)
        of_asked, of_stored = (find_layers(layers, some) for some in (targets, adapter.settings.get("target_modules")))
        if of_asked != of_stored:
            other = min(of_asked ^ of_stored)
            has = (f"none on {other}", "one there") if other in of_asked else (f"one on {other}", "none there")
            unlike = [("lora_targets", *has)]
    for name, stored, asked in unlike:
        raise ConfigError(
            f"model.{name}: the adapter in {adapter.folder} has {stored}, but {asked} is asked for; leave lora_rank "
            "out to go on with that adapter, or give the folder of a whole model"
        )


class PretrainedModel(Part, slot="model"):
    """A pretrained model and its tokenizer, whole or with a LoRA adapter that alone trains."""

    needs_words: ClassVar[bool] = False
    """Its tokenizer comes with it."""
    path: ModelPath
    """A folder in the Hugging Face layout, such as a checkpoint of a run, or a name that the hub knows."""
    dtype: Literal["float32", "bfloat16"] = "float32"
    """Precision of the loaded weights; those of an adapter are float32 whatever theirs."""
    lora_rank: Annotated[int, Field(ge=0)] = 0
    """Rank of the adapter; 0 = all weights train, or the adapter that the folder holds."""
    lora_scale: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 2.0
    """What the adapter's part is multiplied by: LoRA's alpha over its rank."""
    lora_targets: Literal["all-linear"] | Annotated[tuple[str, ...], Field(min_length=1)] = ALL_LINEAR
    """Layers that the adapter sits on, by the ends of their names, such as ["q_proj", "v_proj"]; all-linear = every
    linear layer but the output layer."""
    quantise: Literal["no", "4bit"] = "no"
    """Whether linear layers below an adapter are kept in four bits (QLoRA), which bitsandbytes does; `dtype` is what
    they compute in. The engine has them so too."""

    @property
    def trains_in_bfloat16(self) -> bool:
        """Whether all weights train, and are bfloat16: not every learner can do that."""
        return self.dtype == "bfloat16" and not self.lora_rank and self.quantise == "no"

    @model_validator(mode="after")
    def _has_adapter_for_targets(self) -> PretrainedModel:
        if self.lora_targets != ALL_LINEAR and not self.lora_rank:
            raise ValueError(
                "lora_targets names layers of an adapter, but lora_rank is 0; set a lora_rank, or leave lora_targets "
                "out"
            )
        return self

    def check(self) -> None:
        """Refuse, before anything is opened, targets of an adapter that the model does not have."""
        from groupwise.models import folder as folders

        folders.check_folder(self.path)
        has_adapter = folders.find_adapter(self.path) is not None
        if self.quantise == "4bit":
            from groupwise.models.quantised import check_quantising

            check_quantising(has_adapter=has_adapter or self.lora_rank > 0)
        if self.lora_rank and not has_adapter:
            check_targets(self.lora_targets, folders.resolve_path(self.path))

    def open(self, *, words: tuple[str, ...], seed: int) -> tuple[Any, Any]:
        """Load the model and its tokenizer; the words of the environment are not needed.

        A folder that holds an adapter, such as a checkpoint of a run that trained one, goes on with that adapter.
        """
        import torch

        from groupwise.models import folder as folders

        folders.check_folder(self.path)
        adapter = folders.find_adapter(self.path)
        if adapter is not None:
            if self.lora_rank:  # rank 0 says nothing of it
                check_same_adapter(adapter, self.lora_rank, self.lora_scale, self.lora_targets)
            tokenizer = folders.load_tokenizer(adapter.tokenizer_path)
            return folders.load_adapter(adapter, self._load_base(adapter.base)), tokenizer
        place = folders.resolve_path(self.path)
        if self.lora_rank:
            check_targets(self.lora_targets, place)
        tokenizer, model = folders.load_tokenizer(place), self._load_base(place)
        if not self.lora_rank:
            return model, tokenizer
        from peft import get_peft_model

        with torch.random.fork_rng(devices=[]), quietly():
            torch.manual_seed(seed % 2**63)
            return get_peft_model(model, self.make_lora_settings(place)), tokenizer

    def _load_base(self, place: str) -> Any:
        import torch

        from groupwise.models.folder import load_model

        model = load_model(place, dtype=getattr(torch, self.dtype))
        if self.quantise == "4bit":
            from groupwise.models.quantised import quantise_layers

            quantise_layers(model, dtype=getattr(torch, self.dtype))
        return model

    def make_lora_settings(self, place: str) -> Any:
        """peft's settings of a new adapter on the model of a place."""
        from peft import LoraConfig

        alpha: Any = self.lora_scale * self.lora_rank  # peft says int and takes any number
        targets = self.lora_targets if isinstance(self.lora_targets, str) else list(self.lora_targets)
        return LoraConfig(r=self.lora_rank, lora_alpha=alpha, target_modules=targets, base_model_name_or_path=place)

    def open_tokenizer(self, *, words: tuple[str, ...]) -> tuple[Any, int | None]:
        """The tokenizer that `open` gives, and how many positions the model has; no weights are read."""
        from groupwise.models import folder as folders

        folders.check_folder(self.path)
        if not may_run() and not Path(self.path).expanduser().is_dir():
            raise ConfigError(f"model.path: {self.path!r} is a name that the hub would be asked for, {WITHOUT_TRUST}")
        adapter = folders.find_adapter(self.path)
        place = folders.resolve_path(self.path) if adapter is None else adapter.base
        tokenizer = folders.load_tokenizer(place if adapter is None else adapter.tokenizer_path)
        return tokenizer, folders.read_positions(place)
