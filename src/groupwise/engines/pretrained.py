"""Any Hugging Face causal language model: from a local folder, or by its name on a hub."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from groupwise.core.errors import ConfigError, nearest
from groupwise.core.parts import Part


class PretrainedModel(Part, slot="model"):
    """A pretrained model and its tokenizer, whole or with a LoRA adapter that alone trains."""

    path: str
    """A folder in the Hugging Face layout, or a name that the hub knows."""
    dtype: Literal["float32", "bfloat16"] = "float32"
    """Precision of the loaded weights; those of an adapter are float32 whatever theirs."""
    lora_rank: Annotated[int, Field(ge=0)] = 0
    """Rank of the adapter; 0 = all weights train."""
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
        """Load the model and its tokenizer; the words of the environment are not needed."""
        import torch
        from transformers import AutoModelForCausalLM, AutoTokenizer

        _check_folder(self.path)
        try:
            tokenizer = AutoTokenizer.from_pretrained(_place(self.path))
            model = AutoModelForCausalLM.from_pretrained(_place(self.path), dtype=getattr(torch, self.dtype))
        except (OSError, ValueError) as error:
            reason = str(error).splitlines()[0]
            raise ConfigError(
                f"model.path: cannot load {self.path!r} ({reason}); give a local folder or a hub name"
            ) from None
        if not self.lora_rank:
            return model, tokenizer
        from peft import LoraConfig, get_peft_model

        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed % 2**63)
            alpha: Any = self.lora_scale * self.lora_rank  # peft says int and takes any number
            adapter = LoraConfig(r=self.lora_rank, lora_alpha=alpha, target_modules="all-linear")
            return get_peft_model(model, adapter), tokenizer


def _place(path: str) -> str:
    """The path as transformers takes it, the home folder written out."""
    return str(Path(path).expanduser()) if path.startswith("~") else path


def _check_folder(path: str) -> None:
    """Refuse at once what can only be meant as a folder and is none: the hub would be asked for it for a minute."""
    folder = Path(path).expanduser()
    is_folder = path.startswith((".", "~")) or folder.is_absolute() or path.count("/") > 1
    is_folder = is_folder or ("/" in path and folder.parent.is_dir())
    if not is_folder or folder.is_dir():
        return
    beside = [str(each) for each in folder.parent.glob("*/")] if folder.parent.is_dir() else []
    advice = nearest(path, beside) if beside else "give a local folder or a hub name"
    raise ConfigError(f"model.path: there is no folder {path!r}; {advice}")
