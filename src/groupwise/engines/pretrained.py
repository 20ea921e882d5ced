"""Any Hugging Face causal language model: from a local folder, or by its name on a hub."""

from __future__ import annotations

from typing import Any

from groupwise.core.errors import ConfigError
from groupwise.core.parts import Part


class PretrainedModel(Part, slot="model"):
    """A pretrained model and its tokenizer, whole or with a LoRA adapter that alone trains."""

    path: str
    """A folder in the Hugging Face layout, or a name that the hub knows."""
    dtype: str = "float32"
    """Precision of the weights: float32 on a CPU, bfloat16 on a GPU."""
    lora_rank: int = 0
    """Rank of the adapter; 0 = all weights train."""

    def open(self, *, words: tuple[str, ...], seed: int) -> tuple[Any, Any]:
        """Load the model and its tokenizer; the words of the environment are not needed."""
        import torch
        from transformers import AutoModelForCausalLM, AutoTokenizer

        try:
            tokenizer = AutoTokenizer.from_pretrained(self.path)
            model = AutoModelForCausalLM.from_pretrained(self.path, dtype=getattr(torch, self.dtype))
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
            adapter = LoraConfig(r=self.lora_rank, lora_alpha=2 * self.lora_rank, target_modules="all-linear")
            return get_peft_model(model, adapter), tokenizer
