"""A tokenizer of a token a byte: every character of a text has its own, and text comes back as it was."""

from __future__ import annotations

from collections.abc import Sequence

from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from groupwise.rollout.origins import TokenOrigin
from groupwise.rollout.prompts import Prompter

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


def stretches(made: Prompter, ids: Sequence[int], origins: Sequence[TokenOrigin]) -> list[tuple[str, str]]:
    """The text of a prompt, cut where the origin changes."""
    joined: list[tuple[str, str]] = []
    for token, origin in zip(ids, origins, strict=True):
        said = made.tokenizer.decode([token], skip_special_tokens=False)
        if joined and joined[-1][0] == origin:
            joined[-1] = (str(origin), joined[-1][1] + said)
        else:
            joined.append((str(origin), said))
    return joined
