"""Any Hugging Face causal language model: from a local folder, or by its name on a hub."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field, model_validator

from groupwise.core.errors import ConfigError
from groupwise.core.parts.part import Part
from groupwise.core.parts.trust import WITHOUT_TRUST, may_run

if TYPE_CHECKING:
    from groupwise.models.folder import Adapter


class PretrainedModel(Part, slot="model"):
    """A pretrained model and its tokenizer, whole or with a LoRA adapter that alone trains."""

    path: str
    """A folder in the Hugging Face layout, such as a checkpoint of a run, or a name that the hub knows."""
    dtype: Literal["float32", "bfloat16"] = "float32"
    """Precision of the loaded weights; those of an adapter are float32 whatever theirs."""
    lora_rank: Annotated[int, Field(ge=0)] = 0
    """Rank of the adapter; 0 = all weights train, or the adapter that the folder holds."""
    lora_scale: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 2.0
    """What the adapter's part is multiplied by: LoRA's alpha over its rank."""

    @model_validator(mode="after")
    def _trains_in_float32(self) -> PretrainedModel:
        if self.dtype != "float32" and not self.lora_rank:
            raise ValueError(
                f"all weights would train in {self.dtype}, where small steps are rounded away; set dtype = 'float32', "
                "or a lora_rank"
            )
        return self

    def open(self, *, words: tuple[str, ...], seed: int) -> tuple[Any, Any]:
        """Load the model and its tokenizer; the words of the environment are not needed.

        A folder that holds an adapter, such as a checkpoint of a run that trained one, goes on with that adapter.
        """
        import torch

        from groupwise.models import folder as folders

        dtype = getattr(torch, self.dtype)
        folders.check_folder(self.path)
        adapter = folders.find_adapter(self.path)
        if adapter is not None:
            self._check_same(adapter)
            tokenizer = folders.load_tokenizer(adapter.tokenizer_path)
            return folders.load_adapter(adapter, folders.load_model(adapter.base, dtype=dtype)), tokenizer
        place = folders.resolve_path(self.path)
        tokenizer, model = folders.load_tokenizer(place), folders.load_model(place, dtype=dtype)
        if not self.lora_rank:
            return model, tokenizer
        from peft import LoraConfig, get_peft_model

        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed % 2**63)
            alpha: Any = self.lora_scale * self.lora_rank  # peft says int and takes any number
            lora = LoraConfig(
                r=self.lora_rank, lora_alpha=alpha, target_modules="all-linear", base_model_name_or_path=place
            )
            return get_peft_model(model, lora), tokenizer

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

    def _check_same(self, adapter: Adapter) -> None:
        """Refuse settings of an adapter that are not those of the one in the folder; rank 0 says nothing of it."""
        for name, asked, stored in (
            ("lora_rank", self.lora_rank, adapter.rank),
            ("lora_scale", self.lora_scale, adapter.scale),
        ):
            if self.lora_rank and not math.isclose(asked, stored):
                raise ConfigError(
                    f"model.{name}: the adapter in {self.path} has {stored:g}, but {asked:g} is asked for; leave "
                    "lora_rank out to go on with that adapter, or give the folder of a whole model"
                )
