"""A tokenizer of a token a byte: every character of a text has its own, and text comes back as it was."""

from __future__ import annotations

from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

CHAT = (
    "{% for m in messages %}{{ '[' + m.role + '] ' + m.content }}{{ '</s>' if m.role == 'assistant' else ' . ' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '[assistant] ' }}{% endif %}"
)
"""A chat template that has system messages, and ends turns of the assistant alone."""


def byte_tokenizer(chat: str | None = None) -> PreTrainedTokenizerFast:
    """A token a byte, so that every character of a prompt has its own."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    made = Tokenizer(models.BPE({character: number for number, character in enumerate(alphabet)}, []))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    fast = PreTrainedTokenizerFast(tokenizer_object=made, eos_token="</s>")
    fast.chat_template = chat
    return fast
