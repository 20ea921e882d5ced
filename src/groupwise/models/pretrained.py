"""Any Hugging Face causal language model, from a local folder or from the hub."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar, Final, Literal

from pydantic import Field, model_validator

from groupwise.models import folder as folders
from groupwise.models.folder import ModelPath, StoredAdapter, explain_unloadable, quietly, read_config
from groupwise.parts.outside import WITHOUT_TRUST, may_run
from groupwise.parts.part import Part
from groupwise.system.errors import ConfigError
from groupwise.system.text import quote_line

ALL_LINEAR: Final = "all-linear"
"""Every linear layer except the output layer, as peft calls it."""
NARROWING: Final = ("exclude_modules", "layers_to_transform", "layers_pattern", "rank_pattern", "alpha_pattern")
"""Settings of an adapter that treat layers differently; run files do not have them."""


def list_linear_layers(path: str) -> list[str]:
    """Full names of a model's linear layers in order, without its output layer."""
    import torch
    from transformers import AutoModelForCausalLM
    from transformers.pytorch_utils import Conv1D

    config = read_config(path)
    try:
        with torch.device("meta"):
            model: Any = AutoModelForCausalLM.from_config(config)
    except Exception as error:  # transformers and the hub have no common class
        raise explain_unloadable(path, error) from None
    head = model.get_output_embeddings()
    linear = (torch.nn.Linear, Conv1D)  # GPT-2's own linear layers are Conv1D
    return [name for name, module in model.named_modules() if isinstance(module, linear) and module is not head]


def check_targets(targets: str | Sequence[str], path: str) -> None:
    """Fail if no linear layer of a model has a target's name; a target is the end of a layer's full name."""
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
    """The layers that targets select, as in peft: all, a list of ends of names, or a pattern for whole names."""
    if targets == ALL_LINEAR:
        return set(layers)
    if isinstance(targets, str):
        return {layer for layer in layers if re.fullmatch(targets, layer)}
    ends = list(targets) if isinstance(targets, list | tuple | set) else []
    return {layer for layer in layers if any(layer == end or layer.endswith(f".{end}") for end in ends)}


def check_same_adapter(adapter: StoredAdapter, rank: int, scale: float, targets: str | Sequence[str]) -> None:
    """Fail if a run file's adapter settings differ from those of the adapter in the folder."""
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
            "out to continue with that adapter, or give the folder of a whole model"
        )


class PretrainedModel(Part, slot="model"):
    """A pretrained model and its tokenizer; either all weights train, or only a LoRA adapter."""

    needs_words: ClassVar[bool] = False
    """Its tokenizer comes with it."""
    path: ModelPath
    """A folder in the Hugging Face layout, such as a checkpoint of a run, or a name on the hub."""
    dtype: Literal["float32", "bfloat16"] = "float32"
    """Precision of the loaded weights; the weights of an adapter are always float32."""
    lora_rank: Annotated[int, Field(ge=0)] = 0
    """Rank of the adapter; 0 = all weights train, or the adapter in the folder."""
    lora_scale: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 2.0
    """Factor of the adapter: LoRA's alpha / rank."""
    lora_targets: Literal["all-linear"] | Annotated[tuple[str, ...], Field(min_length=1)] = ALL_LINEAR
    """Layers with an adapter, by the ends of their names, such as ["q_proj", "v_proj"]; all-linear = every linear layer
    except the output layer."""
    quantise: Literal["no", "4bit"] = "no"
    """4bit = keep the linear layers below an adapter in four bits (QLoRA, by bitsandbytes); they compute in `dtype`.
    The engine uses the same layers."""

    @property
    def trains_in_bfloat16(self) -> bool:
        """Whether all weights train in bfloat16; not every learner supports that."""
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
        """Fail before anything is opened if the folder, the quantization or the adapter's targets are wrong."""
        folders.check_folder(self.path)
        has_adapter = folders.find_adapter(self.path) is not None
        if self.quantise == "4bit":
            from groupwise.models.quantised import check_quantising

            check_quantising(has_adapter=has_adapter or self.lora_rank > 0)
        if self.lora_rank and not has_adapter:
            check_targets(self.lora_targets, folders.resolve_path(self.path))

    def open(self, *, words: tuple[str, ...], seed: int) -> tuple[Any, Any]:
        """Load the model and its tokenizer; the words of the environment are not needed.

        If the folder has an adapter, such as a checkpoint of a LoRA run, that adapter is trained further.
        """
        import torch

        folders.check_folder(self.path)
        adapter = folders.find_adapter(self.path)
        if adapter is not None:
            if self.lora_rank:  # rank 0 = any
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

        model = folders.load_model(place, dtype=getattr(torch, self.dtype))
        if self.quantise == "4bit":
            from groupwise.models.quantised import quantise_layers

            quantise_layers(model, dtype=getattr(torch, self.dtype))
        return model

    def make_lora_settings(self, place: str) -> Any:
        from peft import LoraConfig

        alpha: Any = self.lora_scale * self.lora_rank  # annotated int in peft, but any number works
        targets = self.lora_targets if isinstance(self.lora_targets, str) else list(self.lora_targets)
        return LoraConfig(r=self.lora_rank, lora_alpha=alpha, target_modules=targets, base_model_name_or_path=place)

    def open_tokenizer(self, *, words: tuple[str, ...]) -> tuple[Any, int | None]:
        """The tokenizer of `open`, and the number of positions of the model; no weights are read."""
        folders.check_folder(self.path)
        if not may_run() and not Path(self.path).expanduser().is_dir():
            raise ConfigError(f"model.path: {self.path!r} is a name that the hub would be asked for, {WITHOUT_TRUST}")
        adapter = folders.find_adapter(self.path)
        place = folders.resolve_path(self.path) if adapter is None else adapter.base
        tokenizer = folders.load_tokenizer(place if adapter is None else adapter.tokenizer_path)
        return tokenizer, getattr(folders.read_config(place).get_text_config(), "max_position_embeddings", None)
